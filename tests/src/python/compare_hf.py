# SPDX-License-Identifier: MIT
"""compare_hf.py FOLDER: FOLDER/hf of `convert --to hf`, loaded by transformers, against tokens (i32) and logits (f32) of
tests/src/python/twin.h. Leaves with 77 where PyTorch or transformers is missing."""
import os
import sys

folder = sys.argv[1]
os.environ.update(HF_HOME=folder + "/home", HF_HUB_OFFLINE="1", USE_TF="0")
try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(missing)
    sys.exit(77)

read = lambda name, dtype: torch.frombuffer(bytearray(open(f"{folder}/{name}", "rb").read()), dtype=dtype)
tokens = read("tokens", torch.int32).view(2, -1).long()
want = read("logits", torch.float32).view(*tokens.shape, -1)[:, 1:]  # row t of the model predicts token t, here t + 1


def compare(model, tolerance=1e-5):
    with torch.no_grad():
        got = model(tokens, labels=tokens)
    assert got.logits.shape[1] == tokens.shape[1]
    error = ((got.logits[:, :-1].float() - want).abs().max() / want.abs().max()).item()
    loss = torch.nn.functional.cross_entropy(want.flatten(0, 1), tokens[:, 1:].flatten())
    print(f"{error:.1e} of {want.abs().max():.2f}, loss {got.loss:.4f}, {loss:.4f}")
    assert error < tolerance and abs(got.loss - loss) < 100 * tolerance * loss


model = AutoModelForCausalLM.from_pretrained(folder + "/hf", trust_remote_code=True)
assert not model.training and model.config.vocab_size == want.shape[2]
print("attends by", sys.modules[type(model).__module__].weft_attention and "the library")
assert ("weft_attention" in sys.modules) == (len(sys.argv) > 2)
compare(model)
compare(AutoModelForCausalLM.from_pretrained(folder + "/hf", trust_remote_code=True, dtype=torch.bfloat16), 0.1)
model.save_pretrained(folder + "/again")
compare(AutoModelForCausalLM.from_pretrained(folder + "/again", trust_remote_code=True))

text = tokens[:, :5]
drawn = model.generate(text, max_new_tokens=4, do_sample=False)
for _ in range(4):
    with torch.no_grad():
        text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], 1)
assert torch.equal(drawn, text), (drawn, text)

for arguments, words in ((dict(input_ids=torch.zeros(1, model.config.max_position_embeddings, dtype=torch.long)), "one less"),
                         (dict(input_ids=text, attention_mask=text.new_zeros(text.shape)), "knows no padding")):
    try:
        model(**arguments)
        raise AssertionError(words)
    except ValueError as error:
        assert words in str(error), error

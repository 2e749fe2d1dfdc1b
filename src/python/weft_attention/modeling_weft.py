# SPDX-License-Identifier: MIT
"""The model for the package transformers. `convert --to hf` writes it beside weights:
    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)"""
import torch
from torch.nn import functional as F
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .sparse_transformer import SparseTransformer, by_mask, by_operator, model_of, weft_attention

LENGTHS = 128  # windows are filled up to a multiple, so that few lengths need masks of their own


class WeftConfig(PretrainedConfig):
    """weft: the section `model` of a config of weft. transformers reads the other attributes."""
    model_type = "weft"

    def __init__(self, weft=None, **more):
        self.weft = weft
        if weft:
            self.vocab_size, self.max_position_embeddings = weft["vocab"], weft["context"]
            self.hidden_size, self.num_hidden_layers, self.num_attention_heads = weft["width"], weft["layers"], weft["heads"]
        super().__init__(**{"use_cache": False, "tie_word_embeddings": False} | more)


class WeftForCausalLM(PreTrainedModel, GenerationMixin):
    """As transformers counts, row t of the logits predicts token t + 1. A text has at most context - 1 tokens. Nothing is
    cached between tokens: weft_attention.Sampler does that."""
    config_class, base_model_prefix = WeftConfig, "weft"

    def __init__(self, config):
        super().__init__(config)
        self.weft = SparseTransformer(model_of({"model": config.weft}), attend=by_operator if weft_attention else by_mask)
        self.post_init()

    def _init_weights(self, module):
        """SparseTransformer has drawn them."""

    def forward(self, input_ids, attention_mask=None, labels=None, **_):
        n, context = input_ids.shape[1], self.config.max_position_embeddings
        if n >= context:
            raise ValueError(f"a text may have {context - 1} tokens here, one less than the context, got {n}")
        if attention_mask is not None and not attention_mask.bool().all():
            raise ValueError("this model knows no padding: attention_mask must be 1 everywhere; give texts of one length")
        rows = min(context, (n // LENGTHS + 1) * LENGTHS)
        logits = self.weft(F.pad(input_ids, (0, rows - n)))[:, 1:n + 1]
        loss = None if labels is None else F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **_):
        return {"input_ids": input_ids, "attention_mask": attention_mask}

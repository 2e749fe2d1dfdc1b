set -e
cd /tmp/emu; python3 port.py
F="-std=c++20 -O1 -g -w -DWEFT_SM90A -I/tmp/emu -I/tmp/emu/fake -I/work/wt/onecard $EXTRA"
g++ $F -c decode_blocks.cpp -o decode_blocks.o & 
g++ $F -c emu.cpp -o emu.o & wait
[ test.o -nt test.cpp ] || g++ -std=c++20 -O1 -g -w -I/work/wt/onecard -c test.cpp -o test.o
B=/work/wt/onecard/build/cpu/CMakeFiles
g++ decode_blocks.o emu.o test.o $B/kernels_sampling.dir/kernels/sampling/decode_{attention,blocks,linear}.cpp.o $B/kernels_attention.dir/kernels/attention/{attention,check,documents}.cpp.o $B/kernels_layers.dir/kernels/layers/{rotary,layernorm,pointwise}.cpp.o $B/kernels.dir/kernels/*.cpp.o -fopenmp $EXTRA $LIBS -o emu_test_new && mv emu_test_new emu_test

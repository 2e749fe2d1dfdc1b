# usage: e.sh COMMIT ; two GPUs
T0=$SECONDS; say() { echo "[$((SECONDS-T0)) s] $*"; }
tar xf .carry/nl.tar -C /usr/include
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real -DCMAKE_CUDA_FLAGS=-Xptxas=-v > $OUT/build.log 2>&1
python3 -c "import lzma,shutil; shutil.copyfileobj(lzma.open('.carry/english_novels_100.txt.xz'), open('/tmp/novels.txt','wb'))" &
ninja -C build/cuda >> $OUT/build.log 2>&1 || { grep -n "error" $OUT/build.log | head; exit 1; }
say built; nvidia-smi -L
cp -r build/cuda/bin /tmp/bin; T=build/cuda/bin/weft_tests
export OMP_WAIT_POLICY=passive
A='CudaPython*:CudaSegmentMaps*:CudaContent*:CudaDecode*:CudaEngine*'
(CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=10 $T --gtest_brief=1 --gtest_filter="Cuda*-$A" --gtest_output=json:$OUT/rest.json > $OUT/rest.log 2>&1; say rest $?) &
R1=$!
(CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=6 $T --gtest_brief=1 --gtest_filter="$A" --gtest_output=json:$OUT/beside.json > $OUT/beside.log 2>&1; say beside $?) &
R2=$!
(OMP_NUM_THREADS=4 timeout 150 $T --gtest_brief=1 --gtest_filter='CudaMulti*' --gtest_output=json:$OUT/multi.json > $OUT/multi.log 2>&1; say multi $?; tail -4 $OUT/multi.log) &
R3=$!
if [ "$GPUS" != 1 ]; then
(mkdir -p /tmp/ctl && git archive HEAD 2>/dev/null | tar x -C /tmp/ctl || cp -r CMakeLists.txt CMakePresets.json src kernels models data configs train tests /tmp/ctl; cd /tmp/ctl && patch -p0 < tests/tools/content_controls.patch && cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real -DWEFT_TESTS=OFF > /dev/null && nice ninja -j 12 -C build/cuda > $OUT/ctl.log 2>&1; say controls $?) &
C=$!
wait $R3
wait $C
(python3 tests/tools/content_table.py /tmp/bin /tmp/novels.txt /tmp/table --controls /tmp/ctl/build/cuda/bin --gpus 1 --steps 250 --copy-steps 800 --seconds ${TABLE:-270} > $OUT/table.log 2>&1; cp /tmp/table/table.md /tmp/table/runs.jsonl $OUT/; say table) &
fi
wait $R1 $R2
tail -3 $OUT/rest.log $OUT/beside.log
WEFT_COMMIT=$1 CUDA_VISIBLE_DEVICES=0 python3 tests/tools/write_gpu_record.py $OUT/rest.json $OUT/beside.json $OUT/gpu_record.json | tail -2
WEFT_COMMIT=$1 CUDA_VISIBLE_DEVICES=0 python3 tests/tools/write_gpu_record.py $OUT/rest.json $OUT/beside.json $OUT/multi.json $OUT/gpu_record_multi.json | tail -2
say record
export CUDA_VISIBLE_DEVICES=0
timeout 60 bash .carry/profile.sh
for c in configs/novels_12l.yaml .carry/half.yaml configs/novels_12l.yaml .carry/half.yaml; do echo $c; timeout 30 /tmp/bin/bench step --config $c --steps 40 --no-breakdown 2>&1 | grep "rate\|step " ; done
cp /tmp/table/runs.jsonl $OUT/ 2>/dev/null
say bench
timeout 150 python3 -W ignore tests/tools/peers/content_peer.py --bench 2>&1 | tee $OUT/content_peer.txt
say peer
(cd tests/tools/peers; PYTHONPATH=$PWD/../../../.carry/peers/site timeout 60 python3 content_kernels_peer.py 2>&1 | tee $OUT/kernels_peer.txt)
cp /tmp/table/runs.jsonl $OUT/ 2>/dev/null
wait

# One GPU: usage n.sh COMMIT. Build (100 s), then the whole suite for the record (256 s on one H200), then times, while there is time.
# Don't set OMP_WAIT_POLICY: passive waiting made the suite 1.6 times as slow. Keep CudaMulti* for a machine with two GPUs and a call of its own.
T0=$SECONDS; say() { echo "[$((SECONDS-T0)) s] $*"; }
tar xf .carry/nl.tar -C /usr/include
(cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real -DCMAKE_CUDA_FLAGS=-Xptxas=-v && ninja -C build/cuda) > $OUT/build.log 2>&1 || { grep -n "error" $OUT/build.log | head; exit 1; }
say built; nvidia-smi -L
T=build/cuda/bin/weft_tests
A='CudaPython*:CudaSegmentMaps*:CudaContent*:CudaDecode*:CudaEngine*'
OMP_NUM_THREADS=10 $T --gtest_brief=1 --gtest_filter="Cuda*-$A" --gtest_output=json:$OUT/rest.json > $OUT/rest.log 2>&1 &
OMP_NUM_THREADS=6 $T --gtest_brief=1 --gtest_filter="$A" --gtest_output=json:$OUT/beside.json > $OUT/beside.log 2>&1 &
wait
tail -3 $OUT/rest.log $OUT/beside.log
WEFT_COMMIT=$1 python3 tests/tools/write_gpu_record.py $OUT/rest.json $OUT/beside.json $OUT/gpu_record.json
say record
bash .carry/profile.sh
WEFT_CONTENT_SPEED=routing timeout 60 ncu --kernel-name regex:forward_kernel --launch-skip 3 -c 1 --set full $T --gtest_brief=1 --gtest_filter=CudaContent.Speed > $OUT/ncu.txt 2>&1; tail -60 $OUT/ncu.txt
say ncu
timeout 150 python3 -W ignore tests/tools/peers/content_peer.py --bench 2>&1 | tee $OUT/content_peer.txt
say peer

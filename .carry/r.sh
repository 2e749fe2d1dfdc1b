# One GPU: r.sh COMMIT. Build (105 s on 16 cores), three test processes for the record (200 to 300 s), times, ncu. Then peers if time is left.
# Don't set OMP_WAIT_POLICY; combine nothing else with the record. Needs .carry/nl.tar (tar of /usr/include/nlohmann) and
# trace.so (g++ -shared -fPIC -std=c++20 trace.cpp -I/usr/local/cuda/include -lcupti).
T0=$SECONDS; say() { echo "[$((SECONDS-T0)) s] $*"; }
tar xf .carry/nl.tar -C /usr/include
(cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real -DCMAKE_CUDA_FLAGS=-Xptxas=-v && ninja -C build/cuda) > $OUT/build.log 2>&1 || { grep -n "error" $OUT/build.log | head; exit 1; }
say built; nvidia-smi -L | cut -c1-60
T=build/cuda/bin/weft_tests
A='CudaSegmentMaps*:CudaContent*:CudaDecode*:CudaEngine*'; B='CudaAttention*'
t() { OMP_NUM_THREADS=$1 $T --gtest_brief=1 --gtest_filter="$3" --gtest_output=json:$OUT/$2.json > /tmp/$2.log 2>&1; say $2 rc $?; grep -a FAILED /tmp/$2.log | head -n 5; }
# quick ones first: a hang or a wrong kernel shows before the suite has cost its time
timeout 60 $T --gtest_brief=1 --gtest_filter='CudaContentModel*:CudaContent.TwoRuns*:CudaContent.Labels*:Cuda/CudaParity*segment*' > /tmp/q.log 2>&1 || { tail -n 5 /tmp/q.log; exit 1; }
# REPEAT=240: attention and training steps for so many seconds each, two processes beside the suite
export WEFT_REPEAT_SECONDS=${REPEAT:-6}
t 1 d 'CudaRepeat.Att*' & t 1 e 'CudaRepeat.Tr*' & t 5 a "$A" & t 5 b "$B" & t 4 c "Cuda*-CudaRepeat*:$A:$B" & wait
WEFT_COMMIT=$1 python3 tests/tools/write_gpu_record.py $OUT/[abcde].json $OUT/gpu_record.json
say record
bash .carry/profile.sh | cut -c1-500
WEFT_CONTENT_SPEED=lsh timeout 70 ncu -f -o /tmp/r --kernel-name regex:forward_kernel --launch-skip 5 -c 1 --set full $T --gtest_brief=1 --gtest_filter=CudaContent.Speed > /tmp/ncu.log 2>&1
timeout 20 ncu --import /tmp/r.ncu-rep --page source --csv > $OUT/ncu_source.csv 2>&1; say ncu
(cd tests/tools/peers; timeout ${PEERS:-100} python3 -W ignore content_peer.py --bench topk_blocks lsh); say peers

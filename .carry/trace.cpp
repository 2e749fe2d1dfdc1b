// CUPTI injection: prints per-kernel totals at exit.
#include <cupti.h>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <mutex>
#include <cxxabi.h>
static std::map<std::string, std::pair<long, double>> totals; static std::mutex m;
static void CUPTIAPI requested(uint8_t** b, size_t* size, size_t* n){ *size=8<<20; *b=(uint8_t*)aligned_alloc(8,*size); *n=0; }
static FILE* timeline;
static void CUPTIAPI completed(CUcontext, uint32_t, uint8_t* b, size_t, size_t valid){
  CUpti_Activity* r=nullptr; std::lock_guard l(m);
  while(cuptiActivityGetNextRecord(b,valid,&r)==CUPTI_SUCCESS){
    if(r->kind==CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL||r->kind==CUPTI_ACTIVITY_KIND_KERNEL){ auto* k=(CUpti_ActivityKernel4*)r;
      int s=0; char* d=abi::__cxa_demangle(k->name,0,0,&s); std::string n=d?d:k->name; free(d); if(n.size()>110)n.resize(110);
      auto& t=totals[n]; t.first++; t.second+=(k->end-k->start)/1e3;
      if(timeline) fprintf(timeline,"%.1f %.1f %s\n",k->start/1e3,(k->end-k->start)/1e3,n.c_str());
    } else if(r->kind==CUPTI_ACTIVITY_KIND_MEMSET){auto* k=(CUpti_ActivityMemset*)r; auto& t=totals["memset"]; t.first++; t.second+=(k->end-k->start)/1e3;}
    else if(r->kind==CUPTI_ACTIVITY_KIND_MEMCPY){auto* k=(CUpti_ActivityMemcpy*)r; auto& t=totals["memcpy"]; t.first++; t.second+=(k->end-k->start)/1e3;}
  } free(b);
}
static void done(){ cuptiActivityFlushAll(1); std::multimap<double,std::string> s; for(auto&[n,t]:totals){char x[200]; snprintf(x,200,"%8ld x %9.2f us  %s",t.first,t.second/t.first,n.c_str()); s.emplace(-t.second,x);} const char* o=getenv("TRACE_OUT"); FILE* f=o?fopen(o,"w"):stderr; for(auto&[t,x]:s) fprintf(f,"%10.1f us %s\n",-t,x.c_str()); if(o) fclose(f); }
extern "C" int InitializeInjection(){ if(const char* t=getenv("TRACE_TIMELINE")) timeline=fopen(t,"w"); cuptiActivityRegisterCallbacks(requested,completed); cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL); cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET); cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY); atexit(done); return 1; }

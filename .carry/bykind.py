import re,collections
rows=[l.split(' ',2) for l in open('/tmp/tl.txt')]
rows=[(float(a),float(b),re.sub(r'weft::|\(anonymous namespace\)::|content::|void |attention::|hopper::|items_kernel','',c.strip())) for a,b,c in rows]
it=[];cur=[]
for r in rows:
    if 'read_clocks' in r[2]:
        if cur: it.append(cur)
        cur=[]
    else: cur.append(r)
stats=collections.defaultdict(lambda: collections.defaultdict(list)); span=collections.defaultdict(list)
for c in it:
    n=' '.join(x[2] for x in c)
    kind='topk' if 'choice_item' in n else ('lsh' if 'signs_item' in n else ('routing' if 'direction_item' in n else 'fixed'))
    b='bwd' if 'stationary' in n or 'backward' in n else 'fwd'
    per=collections.Counter()
    for x in c: per[x[2][:48]]+=x[1]
    for k,v in per.items(): stats[kind,b][k].append(v)
    span[kind,b].append(c[-1][0]+c[-1][1]-c[0][0])
med=lambda v: sorted(v)[len(v)//2]
for key in sorted(stats):
    if key[0]=='fixed':continue
    print(*key,'sum %.0f span %.0f:'%(sum(med(v) for v in stats[key].values()),med(span[key])),'; '.join('%s %.0f'%(k,med(v)) for k,v in sorted(stats[key].items(),key=lambda kv:-sum(kv[1]))))

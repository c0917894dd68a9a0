import asyncio, http.client, json
from tests.http.conftest import *
from tests.http.served import served
async def test_x(world):
    async with served(world.app) as port:
        def post(n, chunked=False):
            c=http.client.HTTPConnection('127.0.0.1',port,timeout=5)
            try:
                h={'Authorization':'Bearer '+world.secrets[AUTOMATION],'Content-Type':'application/json','Connection':'close'}
                if chunked: body=(b'x'*65536 for _ in range(n//65536))
                else: body=b'x'*n
                c.request('POST','/v1/job',body=body,headers=h,encode_chunked=chunked)
                r=c.getresponse(); return r.status, r.read()
            except Exception as e: return repr(e)
        for n in (5<<20,10<<20,100<<20):
            for ch in (False,True):
                print(n,ch,[await asyncio.to_thread(post,n,ch) for _ in range(3)])
        import httpx2
        async with httpx2.AsyncClient(base_url=f'http://127.0.0.1:{port}') as c:
            for n in (5<<20,10<<20,100<<20):
                try:
                    r=await c.post('/v1/job',content=b'x'*n,headers={'Authorization':'Bearer '+world.secrets[AUTOMATION],'Content-Type':'application/json'}); print(n,r.status_code)
                except Exception as e: print(n,repr(e))
    assert 0

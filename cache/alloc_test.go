package cache

import "testing"

func TestLookupsAndAnswersAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop what it holds")
	}
	_, s := newSpace(t, Config{})
	body := text(1000)
	mustStore(t, s, get("/plain", browser...), okay(body, `ETag: "v1"`, modified, dated), body)
	mustStore(t, s, get("/vary", browser...), okay(body, "Vary: Accept-Encoding, Cookie"), body)
	with := func(target string, texts ...string) *Request {
		return get(target, append(append([]string{}, browser...), texts...)...)
	}
	tests := map[string]struct {
		r     *Request
		state State
	}{
		"hit":                {with("/plain"), Hit},
		"HEAD":               {ask("HEAD", "/plain", browser...), Hit},
		"hit by variant":     {with("/vary"), Hit},
		"hit, directives":    {with("/plain", "Cache-Control: max-age=100, min-fresh=1"), Hit},
		"not modified":       {with("/plain", `If-None-Match: "a", W/"v1"`), Hit},
		"not modified, date": {with("/plain", "If-Modified-Since: "+day+"11:00:00 GMT"), Hit},
		"several ranges":     {with("/plain", "Range: bytes=0-0,-1"), Hit},
		"range that lost":    {with("/plain", "Range: bytes=0-0", `If-Range: "v0"`), Hit},
		"miss":               {with("/nothing"), Miss},
		"variant miss":       {get("/vary", "Accept-Encoding: br"), Miss},
		"refetch":            {with("/plain", "Cache-Control: no-cache", "Pragma: no-cache"), Miss},
		"bypass":             {with("/plain", "Authorization: Basic x"), Bypass},
		"another method":     {ask("POST", "/plain", browser...), Bypass},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := testing.AllocsPerRun(200, func() {
				found := s.Lookup(tt.r, at(1))
				if found.State != tt.state {
					t.Fatalf("state %d, want %d", found.State, tt.state)
				}
				if found.Object != nil && found.Object.Answer(tt.r).Status == 0 {
					t.Fatal("no answer")
				}
			})
			if got != 0 {
				t.Errorf("%v allocations", got)
			}
		})
	}
}

func TestInvalidationAllocatesNothing(t *testing.T) {
	_, s := newSpace(t, Config{})
	r := ask("POST", "/", browser...)
	if got := testing.AllocsPerRun(100, func() { s.Invalidate(r) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

package activator

import (
	"testing"

	"github.com/usher-edge/usher/activator/cgroup"
)

// A state directory outlives the program, and a spec that reads differently is a
// new revision: if this text changes, every app of every user gets one at the next
// start of usher. Fields that come later must be left out where they are empty.
func TestTheSpecOfAReleaseReadsAsEver(t *testing.T) {
	full := Process{
		Command: []string{"./hello", "x"}, Env: map[string]string{"B": "2", "A": "1"}, Listen: ListenFixed, Port: 3000,
		User: "1001", Group: "1002", Hold: true, Limits: cgroup.Limits{Memory: 1 << 28, PIDs: 200},
	}
	for _, c := range []struct {
		p    Process
		want string
	}{
		{Process{Listen: ListenPort}, `{"listen":"port"}`},
		{Process{Listen: ListenSocket, User: "0"}, `{"listen":"socket","user":"0"}`},
		{full, `{"command":["./hello","x"],"env":{"A":"1","B":"2"},"listen":"fixed","port":3000,"user":"1001","group":"1002","hold":true,"limits":{"memory":268435456,"pids":200}}`},
	} {
		if got := string(c.p.encode()); got != c.want {
			t.Errorf("it reads\n%s\nand did read\n%s", got, c.want)
		}
	}
}

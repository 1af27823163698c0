package process

import (
	"os/user"
	"strconv"
	"strings"
	"testing"
)

func TestUsersAreFoundByNameAndNumber(t *testing.T) {
	for _, name := range []string{"root", "0"} {
		uid, gid, home, err := LookupUser(name)
		if err != nil || uid != 0 || gid != 0 || home == "" {
			t.Errorf("%s: got %d %d %q, %v", name, uid, gid, home, err)
		}
	}
	if u, err := user.Lookup("nobody"); err == nil {
		uid, gid, _, err := LookupUser("nobody")
		if err != nil || strconv.Itoa(int(uid)) != u.Uid || strconv.Itoa(int(gid)) != u.Gid {
			t.Errorf("nobody: got %d %d, %v; want %s %s", uid, gid, err, u.Uid, u.Gid)
		}
	}
	uid, gid, home, err := LookupUser("3999999999")
	if err != nil || uid != 3999999999 || gid != uid || home != "/" {
		t.Errorf("a number without an entry: got %d %d %q, %v", uid, gid, home, err)
	}
	for _, name := range []string{"no-such-user", "", "4294967296", "-1"} {
		if _, _, _, err := LookupUser(name); err == nil || !strings.Contains(err.Error(), "no such user") {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

package process

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
)

// LookupUser finds a user by name or by number. A number without an entry in
// the user database is taken as it is, with the group of the same number and "/"
// as home.
func LookupUser(name string) (uid, gid uint32, home string, err error) {
	if number, parseErr := strconv.ParseUint(name, 10, 32); parseErr == nil {
		u, err := user.LookupId(name)
		var unknown user.UnknownUserIdError
		if errors.As(err, &unknown) {
			return uint32(number), uint32(number), "/", nil
		}
		return userIDs(u, err)
	}
	u, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		return 0, 0, "", fmt.Errorf("look up user %q: no such user; create it (useradd --system %s) or give a number", name, name)
	}
	return userIDs(u, err)
}

func userIDs(u *user.User, err error) (uint32, uint32, string, error) {
	if err != nil {
		return 0, 0, "", fmt.Errorf("look up user: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, "", fmt.Errorf("look up user %q: %w", u.Username, err)
	}
	return uint32(uid), uint32(gid), u.HomeDir, nil
}

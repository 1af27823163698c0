package admin

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// Address is where an admin API is. Scheme is "unix", "http" or "https"; Path
// is set for unix and Host ("name:port") for the others.
type Address struct {
	Scheme string
	Path   string
	Host   string
}

// ParseAddress reads "unix:/path", "/path", "host:port", "tcp:host:port" and
// "http[s]://host[:port]".
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return unixAddress(text, strings.TrimPrefix(path, "//"))
	}
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") {
		return unixAddress(text, text)
	}
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		return urlAddress(text)
	}
	host := strings.TrimPrefix(strings.TrimPrefix(text, "tcp:"), "//")
	name, port, err := net.SplitHostPort(host)
	if err != nil || name == "" {
		return Address{}, addressError(text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Address{}, addressError(text)
	}
	return Address{Scheme: "http", Host: host}, nil
}

func unixAddress(text, path string) (Address, error) {
	if path == "" {
		return Address{}, addressError(text)
	}
	return Address{Scheme: "unix", Path: path}, nil
}

func urlAddress(text string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return Address{}, addressError(text)
	}
	return Address{Scheme: u.Scheme, Host: u.Host}, nil
}

func addressError(text string) error {
	return fmt.Errorf("%q is no admin address; use unix:/path, host:port or https://host", text)
}

// String is a text that ParseAddress reads back.
func (a Address) String() string {
	if a.Scheme == "unix" {
		return "unix:" + a.Path
	}
	return a.Scheme + "://" + a.Host
}

// DefaultAddress is where usher is when nobody says else: /run/usher/admin.sock
// for root, $XDG_RUNTIME_DIR/usher/admin.sock for others, and without that
// variable admin.sock in the default state directory.
func DefaultAddress(uid int, getenv func(string) string) Address {
	return Address{Scheme: "unix", Path: filepath.Join(defaultDir(uid, getenv), "usher", "admin.sock")}
}

func defaultDir(uid int, getenv func(string) string) string {
	if uid == 0 {
		return "/run"
	}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return dir
	}
	if dir := getenv("XDG_STATE_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(getenv("HOME"), ".local", "state")
}

package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// maxSocketPath is the longest path of a unix socket: sun_path less its NUL.
const maxSocketPath = 107

const unixPrefix = "unix:"

// unixAddr reads the path behind "unix:". problem says what is wrong with it.
func (r *reader) unixAddr(path string) (a Addr, problem string) {
	if path == "" {
		return Addr{}, `names no path; write "unix:/path/of/socket"`
	}
	if path[0] == '@' {
		return Addr{}, `is an abstract socket, which has no owner or mode; write "unix:/path/of/socket"`
	}
	abs := r.path(path)
	if len(abs) > maxSocketPath {
		return Addr{}, fmt.Sprintf("%s has %d bytes, and a socket path can have %d at most; choose a shorter one",
			abs, len(abs), maxSocketPath)
	}
	return Addr{Network: "unix", Address: abs}, ""
}

// listenAddr reads an address to listen on. Names are not resolved, because
// whether two listeners overlap must not depend on DNS.
func (r *reader) listenAddr(text string) (a Addr, problem string) {
	if path, ok := strings.CutPrefix(text, unixPrefix); ok {
		return r.unixAddr(path)
	}
	host, port, problem := splitAddr(text)
	if problem != "" {
		return Addr{}, problem
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if host != "" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return Addr{}, fmt.Sprintf(`%q is no IP address; write one, such as "127.0.0.1:%s", or ":%s" for all interfaces`,
				host, port, port)
		}
		host = ip.String()
	}
	return Addr{Network: "tcp", Address: net.JoinHostPort(host, port)}, ""
}

// dialAddr reads the address of an app that usher does not start.
func (r *reader) dialAddr(text string) (a Addr, problem string) {
	if path, ok := strings.CutPrefix(text, unixPrefix); ok {
		return r.unixAddr(path)
	}
	if strings.Contains(text, "://") {
		return Addr{}, `is a URL; write only "host:port"`
	}
	host, port, problem := splitAddr(text)
	switch {
	case problem != "":
		return Addr{}, problem
	case port == "0":
		return Addr{}, "port 0 cannot be dialled; write the port that the app listens on"
	case host == "":
		return Addr{}, fmt.Sprintf(`names no host; write "127.0.0.1:%s"`, port)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() {
			return Addr{}, fmt.Sprintf(`%s cannot be dialled; write "127.0.0.1:%s"`, ip, port)
		}
		return Addr{Network: "tcp", Address: net.JoinHostPort(ip.String(), port)}, ""
	}
	name, problem := hostName(strings.ToLower(host))
	if problem != "" {
		return Addr{}, problem
	}
	return Addr{Network: "tcp", Address: net.JoinHostPort(name, port)}, ""
}

// splitAddr takes "host:port" apart and writes the port in its plain form.
func splitAddr(text string) (host, port, problem string) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", "", fmt.Sprintf(`%q is no address; write "host:port", "[ipv6]:port" or "unix:/path"`, text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", "", fmt.Sprintf("%q is no port; write a number from 0 to 65535", port)
	}
	return host, strconv.FormatUint(n, 10), ""
}

// tcpParts returns host and port of a tcp address that was read from the file.
func tcpParts(a Addr) (host string, port uint16) {
	host, text, err := net.SplitHostPort(a.Address)
	if err != nil {
		return "", 0
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0
	}
	return host, uint16(n)
}

// overlaps reports that two listeners cannot both be opened. A wildcard address
// takes both IP versions, as net.Listen does. Port 0 never overlaps.
func overlaps(a, b Addr) bool {
	if a.Network != b.Network {
		return false
	}
	if a.Network == "unix" {
		return filepath.Clean(a.Address) == filepath.Clean(b.Address)
	}
	hostA, portA := tcpParts(a)
	hostB, portB := tcpParts(b)
	if portA != portB || portA == 0 {
		return false
	}
	return hostA == hostB || isWildcard(hostA) || isWildcard(hostB)
}

func isWildcard(host string) bool {
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// reaches reports that dialling target ends at listener a.
func reaches(target, a Addr) bool {
	if target.Network == "unix" || a.Network == "unix" {
		return target == a
	}
	host, port := tcpParts(target)
	own, ownPort := tcpParts(a)
	if port != ownPort {
		return false
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (host == own || isWildcard(own) && ip.IsLoopback())
}

// portRange reads "20000-29999".
func portRange(text string) (p PortRange, problem string) {
	const advice = `write two ports from 1024 to 65535 such as "20000-29999"`
	first, last, ok := strings.Cut(text, "-")
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	switch {
	case !ok || errA != nil || errB != nil:
		return PortRange{}, fmt.Sprintf("%q is no range of ports; %s", text, advice)
	case a < 1024:
		return PortRange{}, fmt.Sprintf("%d is a privileged port; %s", a, advice)
	case b <= a:
		return PortRange{}, fmt.Sprintf("%q holds fewer than two ports; %s", text, advice)
	}
	return PortRange{First: uint16(a), Last: uint16(b)}, ""
}

// prefix reads an IP address or a CIDR block.
func prefix(text string) (p netip.Prefix, problem string) {
	const advice = `write one such as "10.0.0.0/8", "192.0.2.7" or "2001:db8::/32"`
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), ""
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Sprintf("%q is no IP address or CIDR block; %s", text, advice)
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Sprintf("%q maps IPv4 into IPv6; %s", text, advice)
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Sprintf("%q has bits set behind its mask; write %q, or the address alone", text, m)
	}
	return p, ""
}

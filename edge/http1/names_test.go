package http1

import (
	"strings"
	"testing"
)

func TestEveryKnownNameIsFoundInAnyCase(t *testing.T) {
	seen := map[uint8]string{}
	for n := Accept; n < nameCount; n++ {
		text := nameText()[n]
		if text == "" {
			t.Fatalf("name %d has no text", n)
		}
		slot := names[n].slot()
		if other, taken := seen[slot]; taken {
			t.Errorf("%s and %s share a slot", text, other)
		}
		seen[slot] = text
		for _, s := range []string{text, strings.ToUpper(text), strings.ToUpper(text[:1]) + text[1:], string(titles[n].name())} {
			if got := lookup(s); got != n {
				t.Errorf("lookup(%s) = %d, want %d", s, got, n)
			}
		}
		for _, s := range []string{text + "x", "x" + text, text[1:]} {
			if s != "" && lookup(s) == n {
				t.Errorf("lookup(%s) found %s", s, text)
			}
		}
	}
}

// lookup is which name a field of that name has.
func lookup(name string) Name {
	var f Field
	f.read([]byte(name+": x\r\n"), 0, DefaultName)
	return f.Known
}

func TestTheUsualSpellingHasACapitalInEachWord(t *testing.T) {
	for n, want := range map[Name]string{Host: "Host", ContentLength: "Content-Length", HTTP2Settings: "Http2-Settings"} {
		if got := string(titles[n].name()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestFamiliesAndLookAlikesAreFound(t *testing.T) {
	for name, want := range map[string]Name{
		"Content_Length": NameAlias, "TRANSFER_ENCODING": NameAlias, "X_Forwarded-For": NameAlias,
		"X_Forwarded_Anything": NameAlias, "Proxy_Foo": NameAlias, "Usher_Generation": NameAlias,
		"X-Forwarded-Port": NameForwardedMore, "x-forwarded-a": NameForwardedMore, "X-Forwarded-": NameOther,
		"Proxy": NameProxy, "Proxy-Connection": NameProxy, "PROXY-AUTHORIZATION": NameProxy, "Proxys": NameOther,
		"Proxy-Status": ProxyStatus, "Usher-Generation": NameUsher, "Usher": NameOther,
		"X_Custom": NameOther, "DCLK_imp": NameOther, "Host_": NameOther, "a": NameOther, "~": NameOther,
	} {
		if got := lookup(name); got != want {
			t.Errorf("lookup(%s) = %d, want %d", name, got, want)
		}
	}
}

func TestControlCharactersAreFoundAtEveryOffset(t *testing.T) {
	for size := range 40 {
		for at := range size {
			for c := range 256 {
				b := []byte(strings.Repeat("\xff\x20", 20))[:size]
				b[at] = byte(c)
				want := size
				if c < 0x20 || c == 0x7f {
					want = at
				}
				if got := control(b, 0); got != want {
					t.Fatalf("control of %d bytes with %#x at %d = %d", size, c, at, got)
				}
			}
		}
	}
}

package cache

import "time"

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// parseDate reads an HTTP date (RFC 9110 §5.6.7). The form that is sent today
// costs no allocation, the two obsolete ones do.
func parseDate(b []byte) (time.Time, bool) {
	if len(b) == 0 {
		return time.Time{}, false
	}
	if t, ok := parseFixdate(b); ok {
		return t, true
	}
	for _, layout := range [...]string{"Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		if t, err := time.Parse(layout, string(b)); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// parseFixdate reads "Sun, 06 Nov 1994 08:49:37 GMT".
func parseFixdate(b []byte) (time.Time, bool) {
	const shape = "Www, 00 Mmm 0000 00:00:00 GMT"
	if len(b) != len(shape) {
		return time.Time{}, false
	}
	for i, c := range []byte(shape) {
		digit := '0' <= b[i] && b[i] <= '9'
		switch c {
		case '0':
			if !digit {
				return time.Time{}, false
			}
		case ' ', ',', ':', 'G', 'T':
			if b[i] != c {
				return time.Time{}, false
			}
		}
	}
	if string(b[26:]) != "GMT" {
		return time.Time{}, false
	}
	num := func(from, to int) int {
		n, _ := parseDigits(b[from:to])
		return int(n)
	}
	day, hour, minute, second := num(5, 7), num(17, 19), num(20, 22), num(23, 25)
	t := time.Date(num(12, 16), monthOf(b[8:11]), day, hour, minute, second, 0, time.UTC)
	// What is out of range was carried over, so the day or the time differs;
	// a month that is none leaves December of the year before.
	valid := monthOf(b[8:11]) != 0 && t.Day() == day && t.Hour() == hour && t.Minute() == minute &&
		t.Second() == second && t.Weekday().String()[:3] == string(b[:3])
	return t, valid
}

func monthOf(b []byte) time.Month {
	for i := 0; i < len(months); i += 3 {
		if months[i:i+3] == string(b) {
			return time.Month(i/3 + 1)
		}
	}
	return 0
}

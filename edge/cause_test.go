package edge

import (
	"testing"
	"time"
)

func TestEveryCauseHasAStatusAndALabelOfItsOwn(t *testing.T) {
	labels := map[string]Cause{}
	for c := CauseNone + 1; c < causeCount; c++ {
		v := c.Verdict()
		if v.Status < 400 || v.Status > 599 || v.Label == "" || v.Label == "none" {
			t.Errorf("cause %d: %+v", c, v)
		}
		if other, taken := labels[v.Label]; taken {
			t.Errorf("causes %d and %d share the label %s", c, other, v.Label)
		}
		labels[v.Label] = c
		if _, told := wordsOfProxyStatus()[v.Error]; !told && v.Error != "" {
			t.Errorf("%s: RFC 9209 knows no error %q", v.Label, v.Error)
		}
		if c.Ending() == Served {
			t.Errorf("%s: a cause that ends well", v.Label)
		}
	}
}

// wordsOfProxyStatus are the error types of RFC 9209 §2.3.
func wordsOfProxyStatus() map[string]struct{} {
	all := map[string]struct{}{}
	for _, w := range []string{
		"dns_timeout", "dns_error", "destination_not_found", "destination_unavailable", "destination_ip_prohibited", "destination_ip_unroutable",
		"connection_refused", "connection_terminated", "connection_timeout", "connection_read_timeout", "connection_write_timeout",
		"connection_limit_reached", "tls_protocol_error", "tls_certificate_error", "tls_alert_received", "http_request_error",
		"http_request_denied", "http_response_incomplete", "http_response_header_section_size", "http_response_header_size",
		"http_response_body_size", "http_response_trailer_section_size", "http_response_trailer_size", "http_response_transfer_coding",
		"http_response_content_coding", "http_response_timeout", "http_upgrade_failed", "http_protocol_error", "proxy_internal_response",
		"proxy_internal_error", "proxy_configuration_error", "proxy_loop_detected",
	} {
		all[w] = struct{}{}
	}
	return all
}

func TestCausesHaveTheStatusesOfTheDesign(t *testing.T) {
	for c, want := range map[Cause]int{
		CauseNoSuchHost: 404, CauseNoRelease: 503, CauseWakeFailed: 503, CauseCrashed: 503, CauseParkFull: 503, CauseParkTimeout: 504,
		CauseConnectTimeout: 504, CauseNoSuchName: 502, CauseNoDescriptors: 503,
		CauseConnectRefused: 502, CauseDiedBeforeResponse: 502, CauseDrainCut: 502, CauseFirstByteTimeout: 504, CauseClientGone: 499,
		CauseDraining: 503, CauseMaintenance: 503, CauseBodyTooLarge: 413, CauseLoop: 508, CauseFenced: 503,
		CauseClientParkFull: 429, CauseClientAtCapacity: 429, CauseClientConnections: 429, CauseAtCapacity: 503,
	} {
		if got := c.Verdict().Status; got != want {
			t.Errorf("%s: %d, want %d", c, got, want)
		}
	}
}

// A 503 and a 429 say when to come back: when the app can be there, or, if somebody has
// to do something first, not at once. Nothing else does.
func TestWhatEveryCauseSaysOfComingBack(t *testing.T) {
	type told struct{ unknown, start int } // with nothing known of the app, and with 90 s
	said := map[Cause]told{
		CauseNoRelease: {5, 90}, CauseWakeFailed: {5, 90}, CauseCrashed: {5, 90}, CauseMaintenance: {30, 30}, CauseFenced: {30, 30},
		CauseParkFull: {5, 90}, CauseAtCapacity: {5, 90}, CauseNoDescriptors: {5, 90}, CauseDraining: {5, 90},
		CauseClientParkFull: {5, 90}, CauseClientAtCapacity: {5, 90}, CauseClientConnections: {5, 90},
	}
	for c := CauseNone + 1; c < causeCount; c++ {
		v := c.Verdict()
		want, says := said[c]
		if got := (told{v.RetryAfter(0), v.RetryAfter(90 * time.Second)}); got != want {
			t.Errorf("%s: %+v, want %+v", c, got, want)
		}
		if refused := v.Status == 503 || v.Status == 429; refused != says {
			t.Errorf("%s: status %d, and whether it is said when to come back is %t", c, v.Status, says)
		}
	}
}

func TestRetryAfterIsWholeSecondsAndNeverZero(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 5, -1: 5, 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
	} {
		if got := CauseDraining.Verdict().RetryAfter(d); got != want {
			t.Errorf("RetryAfter(%v) = %d, want %d", d, got, want)
		}
	}
}

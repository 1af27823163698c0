package http1

// fault is one reason to refuse a message, ready in the three roles it can
// play, so that saying no allocates nothing.
type fault struct{ request, response Error }

func newFault(status int, reason string) *fault {
	return &fault{
		request:  Error{Status: status, Reason: reason},
		response: Error{Status: 502, Reason: reason},
	}
}

var (
	faultBareLF      = newFault(400, "LF without CR")
	faultBareCR      = newFault(400, "CR without LF")
	faultRequestLine = newFault(400, "malformed request line")
	faultMethod      = newFault(501, "method is longer than 64 bytes")
	faultNotAllowed  = newFault(405, "CONNECT and TRACE are not allowed")
	faultTarget      = newFault(400, "malformed request target")
	faultTargetByte  = newFault(400, "byte in the request target that must be percent-encoded")
	faultEscape      = newFault(400, "bad percent escape in the request target")
	faultTargetLong  = newFault(414, "request target is too long")
	faultVersion     = newFault(505, "HTTP version is not 1.0 or 1.1")
	faultStatusLine  = newFault(400, "malformed status line")
	faultHeadLong    = newFault(431, "head is too long")
	faultFieldCount  = newFault(431, "too many fields")
	faultName        = newFault(400, "field name is not a token")
	faultNameLong    = newFault(400, "field name is too long")
	faultNameBlank   = newFault(400, "blank before the colon")
	faultNoColon     = newFault(400, "field line without a colon")
	faultFold        = newFault(400, "folded field line")
	faultControl     = newFault(400, "control character in a field value")
	faultLength      = newFault(400, "malformed Content-Length")
	faultLengthTwice = newFault(400, "repeated Content-Length")
	faultCoding      = newFault(400, "Transfer-Encoding other than chunked")
	faultCodingTwice = newFault(400, "repeated Transfer-Encoding")
	faultCoding10    = newFault(400, "Transfer-Encoding on HTTP/1.0")
	faultBoth        = newFault(400, "Content-Length together with Transfer-Encoding")
	faultHost        = newFault(400, "malformed Host")
	faultHostTwice   = newFault(400, "repeated Host")
	faultHostMissing = newFault(400, "missing Host")
	faultHostDiffers = newFault(400, "request target and Host name different authorities")
	faultUserinfo    = newFault(400, "userinfo in the request target")
	faultExpect      = newFault(417, "Expect other than 100-continue")
	faultForwards    = newFault(400, "malformed or repeated Max-Forwards")
	faultOptions     = newFault(400, "too many options in Connection")
	faultSwitch      = newFault(400, "101 without a usable upgrade")

	faultChunkSize   = newFault(400, "malformed chunk size")
	faultChunkExt    = newFault(400, "malformed chunk extension")
	faultChunkExtBig = newFault(400, "too many bytes in chunk extensions")
	faultChunkEnd    = newFault(400, "chunk does not end with CRLF")
	faultTrailerBig  = newFault(400, "trailer section is too long")
	faultTrailer     = newFault(400, "framing field in the trailer section")
)

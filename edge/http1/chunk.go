package http1

// AppendChunk appends data as one chunk, or nothing if data is empty.
func AppendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = AppendChunkSize(dst, len(data))
	dst = append(dst, data...)
	return append(dst, "\r\n"...)
}

// AppendChunkSize appends the size line of a chunk of n bytes, which the
// caller sends with CRLF after them; n must be above 0.
func AppendChunkSize(dst []byte, n int) []byte {
	const digits = "0123456789abcdef"
	shift := 0
	for n>>shift > 15 {
		shift += 4
	}
	for ; shift >= 0; shift -= 4 {
		dst = append(dst, digits[n>>shift&15])
	}
	return append(dst, "\r\n"...)
}

// AppendLastChunk appends the last chunk, the trailer fields and the end.
func AppendLastChunk(dst []byte, trailer []Field) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range trailer {
		dst = appendLine(dst, trailer[i].Name, trailer[i].Value)
	}
	return append(dst, "\r\n"...)
}

package codec

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxNesting is the maximal depth of nested messages, as for JSON. The
// generated decoders recurse without a bound: a body of 2.5 MiB would
// overflow the stack of a goroutine, which ends the process.
const maxNesting = 10000

// leastLevel is the minimal number of bytes of a level: a tag and a length.
const leastLevel = 2

var errNesting = errors.New("exceeded max depth")

// nestsTooDeep reports whether a message contains messages nested deeper than
// levels. It treats strings and bytes that parse as messages like messages.
func nestsTooDeep(message []byte, levels int) bool {
	if levels == 0 {
		return len(message) > 0
	}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 || !number.IsValid() {
			return false
		}
		message = message[n:]
		if kind == protowire.BytesType {
			var inner []byte
			if inner, n = protowire.ConsumeBytes(message); n >= 0 && nestsTooDeep(inner, levels-1) {
				return true
			}
		} else {
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return false
		}
		message = message[n:]
	}
	return false
}

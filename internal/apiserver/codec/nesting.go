package codec

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxNesting is how deep messages may lie in each other, as deep as JSON may
// nest. The generated decoders call themselves for each level and know no
// bound: a body of 2.5 MiB would take all of a goroutine's stack, which ends
// the process.
const maxNesting = 10000

// leastLevel is how many bytes a level takes: a tag and a length.
const leastLevel = 2

var errNesting = errors.New("exceeded max depth")

// nestsTooDeep says that a message may hold messages more than so many levels
// deep. What is text or bytes is taken for a message as far as it reads as one.
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

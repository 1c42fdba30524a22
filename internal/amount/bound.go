package amount

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A quantity may have any exponent of 32 bits, and resource.Quantity writes out
// powers of ten to round and to compare:
//
//	operation            what it computes, for d digits and the exponent e
//	ParseQuantity        10^|e| below 1e-9 or if d > 18; the digits, in time d²
//	Cmp, Add, Sub        10^n for exponents that differ by n, from 18 on, also of 0
//	Value, MilliValue    for 0, e multiplications
//
// 10^900000000 takes hours and gigabytes, and nothing can stop the computation.
// So a quantity out of range is refused as text, before it is parsed:
//
//	body of a request ── CheckJSON, CheckCBOR, CheckProtobuf ──► decoder
//	merged patch, applied configuration ── CheckValue ─────────► converter
//	answer of a webhook ── CheckJSON of the patched object ────► decoder
//	operation of a policy's JSON patch ── CheckUntyped, in celamount
//	stored object ── CheckStoredJSON, CheckStoredProtobuf ─────► decoder
//	annotation, name of a resource ── Parse
//
// The bounds leave room for what the canonical form adds: it has up to nine
// digits after the point, and moves the zeros at the end to the exponent. With
// it, a quantity in range stays in range. What is stored may be larger, because
// controllers write sums of quantities in range.
type bounds struct {
	// digits bounds the digits before the point, after the exponent is applied,
	// and a negative exponent.
	digits int64
	// length bounds the text, in bytes.
	length int
}

// maxDigits and maxLength are the bounds for what users write.
const maxDigits, maxLength = 200, 256

func fromUsers() bounds { return bounds{digits: maxDigits, length: maxLength} }

// fromStore returns the bounds for stored objects.
func fromStore() bounds { return bounds{digits: 1000, length: 1280} }

// RangeError is the error for a quantity that is not in range.
type RangeError struct {
	path, text string
	outside    bounds // in which it is not
}

// Error names the field, if it is known, and the range.
func (e *RangeError) Error() string {
	at := strings.TrimPrefix(e.path, ".")
	if at != "" {
		at += ": "
	}
	return fmt.Sprintf("%sthe quantity %.40q is out of range: write one between 1e-%d and 1e%d, in at most %d characters", at, e.text, e.outside.digits, e.outside.digits, e.outside.length)
}

// within puts a field, an element or a key in front of the path of a RangeError.
// It returns other errors as they are.
func within(err error, step string) error {
	var outside *RangeError
	if errors.As(err, &outside) {
		outside.path = step + outside.path
	}
	return err
}

// errUnreadable is the error for input that might hide a quantity, because the
// decoder is more lenient than this package.
var errUnreadable = errors.New("the encoding is unusual, and may hide quantities out of range")

// errMalformed is the error for CBOR that the decoder refuses. It ends a check
// without an error, because the decoder has the better message.
var errMalformed = errors.New("malformed")

// Check returns a RangeError if text is a quantity out of range. It accepts
// text that is no quantity, which ParseQuantity refuses fast.
func Check(text string) error { return fromUsers().check(text) }

func (b bounds) check(text string) error {
	text = strings.TrimSpace(text)
	if len(text) > b.length {
		return &RangeError{text: text, outside: b}
	}
	unsigned := strings.TrimLeft(text, "+-")
	suffix := strings.TrimLeft(unsigned, "0123456789.")
	whole, _, _ := strings.Cut(strings.TrimLeft(strings.TrimSuffix(unsigned, suffix), "0"), ".")
	if e := exponent(suffix); e < -b.digits || e > b.digits-int64(len(whole)) {
		return &RangeError{text: text, outside: b}
	}
	return nil
}

// CheckUntyped is Check for text that may stand in a field of any type: it accepts
// long text that is no quantity.
func CheckUntyped(text string) error {
	digits := strings.TrimLeft(strings.TrimSpace(text), "+-")
	suffix := strings.TrimLeft(digits, "0123456789.")
	isExponent := suffix != "" && suffix[0]|0x20 == 'e' && strings.Trim(suffix[1:], "+-0123456789") == ""
	if len(suffix) > 2 && !isExponent {
		return nil
	}
	return Check(text)
}

// exponent returns the exponent that a suffix stands for. It returns 0 for the
// binary ones, whose quantities are capped, and for text that is no suffix.
func exponent(suffix string) int64 {
	switch suffix {
	case "n":
		return -9
	case "u":
		return -6
	case "m":
		return -3
	case "k":
		return 3
	case "M":
		return 6
	case "G":
		return 9
	case "T":
		return 12
	case "P":
		return 15
	case "E":
		return 18
	}
	if suffix == "" || suffix[0]|0x20 != 'e' {
		return 0
	}
	e, err := strconv.ParseInt(suffix[1:], 10, 64)
	if err != nil {
		return 0
	}
	return e
}

// Parse is resource.ParseQuantity for text that others than the administrator
// write. It returns a RangeError for a quantity out of range.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

package amount

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json/jsontext"
)

// CheckJSON returns a RangeError if a JSON document has a quantity out of range
// where the type of into, a pointer, has a quantity. It returns nil for
// malformed documents, which decoders refuse. It checks each of several fields
// of one name, because decoders decode each.
func CheckJSON(into any, document []byte) error { return fromUsers().checkJSON(into, document) }

// CheckStoredJSON is CheckJSON for a stored object, within the wider bounds of
// those.
func CheckStoredJSON(into any, document []byte) error { return fromStore().checkJSON(into, document) }

func (b bounds) checkJSON(into any, document []byte) error {
	t, ok := target(into)
	if !ok || !Suspicious(document) {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(document), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	err := b.checkToken(d, t)
	var outside *RangeError
	if err == nil || errors.As(err, &outside) {
		return err
	}
	if json.Valid(document) {
		return errUnreadable
	}
	return nil // decoders fail at the same place, or before
}

// checkToken checks the next value of a document, of type t.
func (b bounds) checkToken(d *jsontext.Decoder, t reflect.Type) error {
	t = pointee(t)
	kind := d.PeekKind()
	switch {
	case isQuantity(t):
		if kind != jsontext.KindString && kind != jsontext.KindNumber {
			break
		}
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		return b.check(token.String())
	case kind == jsontext.KindBeginObject && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		return b.checkObject(d, t)
	case kind == jsontext.KindBeginArray && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		return b.checkArray(d, t.Elem())
	}
	return d.SkipValue()
}

func (b bounds) checkObject(d *jsontext.Decoder, t reflect.Type) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != jsontext.KindEndObject {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		inner, step, ok := below(t, token.String())
		if ok {
			err = within(b.checkToken(d, inner), step)
		} else {
			err = d.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// below returns the type of a field of a struct or of an entry of a map, and how
// paths name it. ok is false for fields without quantities.
func below(t reflect.Type, name string) (inner reflect.Type, step string, ok bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), "[" + name + "]", true
	}
	inner, ok = membersOf(t).named(name)
	return inner, "." + name, ok
}

func (b bounds) checkArray(d *jsontext.Decoder, element reflect.Type) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for i := 0; d.PeekKind() != jsontext.KindEndArray; i++ {
		if err := b.checkToken(d, element); err != nil {
			return within(err, fmt.Sprintf("[%d]", i))
		}
	}
	_, err := d.ReadToken()
	return err
}

// longRun is a number of digits and points that is in range, also with an
// exponent of two digits or a suffix.
const longRun = 64

// Suspicious reports whether there may be a quantity out of range in a JSON
// document: one with more than longRun digits and points, or with an exponent of
// three digits. It takes a fraction of the time of decoding, so that the tokens
// of few documents are read. The digests and UIDs in an object are not
// suspicious: a quantity has a delimiter or a space on each side.
func Suspicious(document []byte) bool {
	for i := 2; i < len(document); i += 3 { // meets every run of three digits and points
		if !isDigitOrPoint(document[i]) {
			continue
		}
		start, end := beforeDigits(document, i), i+1
		for end < len(document) && isDigitOrPoint(document[end]) {
			end++
		}
		if end-start > longRun || end-start >= 3 && isExponent(document, start, end) {
			return true
		}
		i = end
	}
	return false
}

// isExponent reports whether the digits from start to end may be the exponent
// of a quantity.
func isExponent(document []byte, start, end int) bool {
	at := beforeSign(document, start) - 1
	if at < 0 || document[at]|0x20 != 'e' {
		return false
	}
	at = beforeSign(document, beforeDigits(document, at))
	return (at == 0 || delimits(document[at-1])) && (end == len(document) || delimits(document[end]))
}

// beforeDigits returns the index of the first of the digits and points that end
// before an index.
func beforeDigits(document []byte, at int) int {
	for at > 0 && isDigitOrPoint(document[at-1]) {
		at--
	}
	return at
}

// beforeSign returns the index of the sign before an index, or the index itself
// if there is none.
func beforeSign(document []byte, at int) int {
	if at > 0 && (document[at-1] == '+' || document[at-1] == '-') {
		return at - 1
	}
	return at
}

func isDigitOrPoint(b byte) bool { return b >= '0' && b <= '9' || b == '.' }

// delimits reports whether a byte of a JSON document may stand beside a
// quantity. Spaces of other alphabets, which the decoder trims, are not ASCII.
func delimits(b byte) bool {
	switch b {
	case '"', ':', ',', '[', ']', '{', '}':
		return true
	}
	return b <= ' ' || b >= 0x80
}

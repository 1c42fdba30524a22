// Package protomessage reads protobuf messages before their decoders do, for
// checks of what would take a decoder too long or too much of the stack.
package protomessage

import (
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrUnusual is the error for a message that the generated decoders accept and
// nobody writes: with groups, with tags beyond 32 bits, or with numbers in more
// bytes than they may have. A check cannot follow the decoder there, so what the
// message contains is not known.
var ErrUnusual = errors.New("the encoding is unusual, and cannot be checked")

// ErrMalformed is the error for a message that is cut off. The decoder fails at
// the same place.
var ErrMalformed = errors.New("malformed")

// EachField calls visit with each field of a message, in the order of the bytes.
// content is set for the kind bytes. It returns the first error of visit,
// ErrMalformed or ErrUnusual.
func EachField(message []byte, visit func(number protowire.Number, kind protowire.Type, content []byte) error) error {
	return eachField(message, func(protowire.Number, protowire.Type) bool { return true }, visit)
}

// EachInEntry calls visit with the key and the value of an entry of a map, and
// the number of their fields, 1 and 2. The decoders of maps read any kind as
// bytes, so that another kind is ErrUnusual.
func EachInEntry(entry []byte, visit func(number protowire.Number, content []byte) error) error {
	usual := func(number protowire.Number, kind protowire.Type) bool {
		return number > 2 || kind == protowire.BytesType
	}
	return eachField(entry, usual, func(number protowire.Number, _ protowire.Type, content []byte) error {
		if number > 2 {
			return nil
		}
		return visit(number, content)
	})
}

// eachField is EachField for messages whose fields have the numbers and kinds
// that usual accepts. It asks before it reads the value of a field.
func eachField(message []byte, usual func(protowire.Number, protowire.Type) bool, visit func(number protowire.Number, kind protowire.Type, content []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return unreadable(tag)
		}
		if kind == protowire.StartGroupType || !usual(number, kind) {
			return ErrUnusual
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return unreadable(size)
		}
		var content []byte
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(message[tag:])
		}
		if err := visit(number, kind, content); err != nil {
			return err
		}
		message = message[tag+size:]
	}
	return nil
}

// unreadable returns the error for a negative length that protowire returned.
func unreadable(code int) error {
	if errors.Is(protowire.ParseError(code), io.ErrUnexpectedEOF) {
		return ErrMalformed
	}
	return ErrUnusual
}

// NumberOf returns the number of a field of a struct, from a tag such as
// "bytes,2,opt,name=spec".
func NumberOf(f reflect.StructField) (protowire.Number, bool) {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0, false
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	return protowire.Number(n), err == nil
}

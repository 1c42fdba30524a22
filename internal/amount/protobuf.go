package amount

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
)

// CheckProtobuf is CheckJSON for a protobuf message. It also refuses what the
// generated decoders accept and nobody writes, in a message with quantities:
// groups, tags beyond 32 bits, and entries of maps of another kind than bytes.
// Quantity's decoder recurses for each group in a group, so that a body full of
// them takes a stack of half a gigabyte.
func CheckProtobuf(into any, message []byte) error {
	t, ok := target(into)
	if !ok {
		return nil
	}
	err := checkMessage(t, message)
	if errors.Is(err, errMalformed) {
		return nil // the decoder fails at the same place, or before
	}
	return err
}

func checkMessage(t reflect.Type, message []byte) error {
	if isQuantity(t) {
		return eachField(message, func(number protowire.Number, _ protowire.Type, content []byte) error {
			if number == 1 {
				return Check(string(content))
			}
			return nil
		})
	}
	fields := membersOf(t).byNumber
	var elements map[protowire.Number]int // how many of each list there were
	return eachField(message, func(number protowire.Number, kind protowire.Type, content []byte) error {
		m, ok := fields[number]
		if !ok || kind != protowire.BytesType {
			return nil
		}
		err := checkMember(m.of, content)
		if m.of.Kind() == reflect.Slice {
			if err != nil {
				err = within(err, fmt.Sprintf("[%d]", elements[number]))
			}
			if elements == nil {
				elements = map[protowire.Number]int{}
			}
			elements[number]++
		}
		if err != nil && m.name != "" {
			return within(err, "."+m.name)
		}
		return err
	})
}

// checkMember checks a message that is the value of a field of type t, an
// element of its list or an entry of its map.
func checkMember(t reflect.Type, message []byte) error {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return checkMember(t.Elem(), message)
	case reflect.Map:
		return checkEntry(t.Elem(), message)
	case reflect.Struct:
		return checkMessage(t, message)
	}
	return nil
}

// checkEntry checks an entry of a map: a message with the key as field 1 and
// the value as field 2.
func checkEntry(value reflect.Type, entry []byte) error {
	key := ""
	err := eachField(entry, func(number protowire.Number, kind protowire.Type, content []byte) error {
		switch {
		case number > 2:
			return nil
		case kind != protowire.BytesType:
			return errUnreadable // the decoders read any kind as bytes
		case number == 1:
			key = string(content)
			return nil
		}
		return checkMember(value, content)
	})
	if err != nil {
		return within(err, "["+key+"]")
	}
	return nil
}

// eachField calls visit with each field of a message. content is set for the
// kind bytes. The error of a message that is cut off is errMalformed.
func eachField(message []byte, visit func(number protowire.Number, kind protowire.Type, content []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return unreadable(tag)
		}
		if kind == protowire.StartGroupType {
			return errUnreadable
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
		return errMalformed
	}
	return errUnreadable
}

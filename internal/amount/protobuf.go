package amount

import (
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coracle-io/coracle/internal/protomessage"
)

// CheckProtobuf is CheckJSON for a protobuf message. It also refuses what the
// generated decoders accept and nobody writes (protomessage.ErrUnusual), in a
// message with quantities. Quantity's decoder recurses for each group in a group,
// so that a body full of them takes a stack of half a gigabyte.
func CheckProtobuf(into any, message []byte) error { return fromUsers().checkProtobuf(into, message) }

// CheckStoredProtobuf is CheckProtobuf for a stored object, within the wider
// bounds of those.
func CheckStoredProtobuf(into any, message []byte) error {
	return fromStore().checkProtobuf(into, message)
}

func (b bounds) checkProtobuf(into any, message []byte) error {
	t, ok := target(into)
	if !ok {
		return nil
	}
	err := b.checkMessage(t, message)
	switch {
	case errors.Is(err, protomessage.ErrMalformed):
		return nil // the decoder fails at the same place, or before
	case errors.Is(err, protomessage.ErrUnusual):
		return errUnreadable
	}
	return err
}

func (b bounds) checkMessage(t reflect.Type, message []byte) error {
	if isQuantity(t) {
		return protomessage.EachField(message, func(number protowire.Number, _ protowire.Type, content []byte) error {
			if number == 1 {
				return b.check(string(content))
			}
			return nil
		})
	}
	fields, before := membersOf(t).byNumber, -1
	return protomessage.EachField(message, func(number protowire.Number, kind protowire.Type, content []byte) error {
		before++
		m, ok := fields[number]
		if !ok || kind != protowire.BytesType {
			return nil
		}
		err := b.checkMember(m.of, content)
		if err == nil {
			return nil
		}
		if m.of.Kind() == reflect.Slice {
			err = within(err, fmt.Sprintf("[%d]", elements(message, number, before)))
		}
		if m.name != "" {
			err = within(err, "."+m.name)
		}
		return err
	})
}

// elements returns how many of the first fields of a message are elements of the list
// of a number.
func elements(message []byte, number protowire.Number, first int) (n int) {
	_ = protomessage.EachField(message, func(other protowire.Number, kind protowire.Type, _ []byte) error {
		if first--; first >= 0 && other == number && kind == protowire.BytesType {
			n++
		}
		return nil
	})
	return n
}

// checkMember checks a message that is the value of a field of type t, an
// element of its list or an entry of its map.
func (b bounds) checkMember(t reflect.Type, message []byte) error {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return b.checkMember(t.Elem(), message)
	case reflect.Map:
		return b.checkEntry(t.Elem(), message)
	case reflect.Struct:
		return b.checkMessage(t, message)
	}
	return nil
}

// checkEntry checks an entry of a map: a message with the key as field 1 and
// the value as field 2.
func (b bounds) checkEntry(value reflect.Type, entry []byte) error {
	var key []byte
	err := protomessage.EachInEntry(entry, func(number protowire.Number, content []byte) error {
		if number == 1 {
			key = content
			return nil
		}
		return b.checkMember(value, content)
	})
	if err != nil {
		return within(err, "["+string(key)+"]")
	}
	return nil
}

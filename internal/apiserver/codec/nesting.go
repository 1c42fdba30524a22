package codec

import (
	"errors"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coracle-io/coracle/internal/protomessage"
)

// maxNesting is the maximal depth of nested messages, as for JSON. The
// generated decoders recurse without a bound: a body of 2.5 MiB would
// overflow the stack of a goroutine, which ends the process.
const maxNesting = 10000

// leastLevel is the minimal number of bytes of a level: a tag and a length.
const leastLevel = 2

var errNesting = errors.New("exceeded max depth")

// checkNesting returns errNesting if a message of the type of obj, a pointer,
// contains messages nested deeper than maxNesting. It follows the fields in which
// a type can contain itself, as the schemas of custom resources do, and returns
// protomessage.ErrUnusual for a message in which it cannot follow the decoder.
func checkNesting(obj any, message []byte) error {
	if len(message) <= maxNesting*leastLevel {
		return nil
	}
	err := checkLevel(reflect.TypeOf(obj).Elem(), message, maxNesting)
	if errors.Is(err, protomessage.ErrMalformed) {
		return nil // the decoder fails at the same place, or before
	}
	return err
}

// checkLevel checks a message of type t, below which levels more are allowed.
func checkLevel(t reflect.Type, message []byte, levels int) error {
	fields := endlessFields(t)
	if len(fields) == 0 || len(message) == 0 {
		return nil
	}
	if levels <= 0 {
		return errNesting
	}
	return protomessage.EachField(message, func(number protowire.Number, kind protowire.Type, content []byte) error {
		of, ok := fields[number]
		switch {
		case !ok || kind != protowire.BytesType: // the decoders refuse other kinds
			return nil
		case of.Kind() != reflect.Map:
			return checkLevel(of, content, levels-1)
		}
		return protomessage.EachInEntry(content, func(number protowire.Number, content []byte) error {
			if number == 1 {
				return nil
			}
			return checkLevel(elementOf(of.Elem()), content, levels-2)
		})
	})
}

// knownEndless caches the results of endlessFields by type.
var knownEndless sync.Map

// endlessFields returns the fields of a struct type, by number, whose values can
// be nested without end, with the types of their elements or maps.
func endlessFields(t reflect.Type) map[protowire.Number]reflect.Type {
	if known, ok := knownEndless.Load(t); ok {
		return known.(map[protowire.Number]reflect.Type)
	}
	fields := messagesIn(t)
	for number, of := range fields {
		if !isEndless(of, nil) {
			delete(fields, number)
		}
	}
	knownEndless.Store(t, fields)
	return fields
}

// isEndless reports whether a type can contain itself, or a type that can. above
// has the types that contain it.
func isEndless(t reflect.Type, above []reflect.Type) bool {
	if t.Kind() == reflect.Map {
		t = elementOf(t.Elem())
	}
	if slices.Contains(above, t) {
		return true
	}
	above = append(above, t)
	for _, of := range messagesIn(t) {
		if isEndless(of, above) {
			return true
		}
	}
	return false
}

// messagesIn returns the fields of a struct type that protobuf encodes as
// messages or as maps, by number, with the types of their elements or maps. Other
// types have none.
func messagesIn(t reflect.Type) map[protowire.Number]reflect.Type {
	found := map[protowire.Number]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return found
	}
	for i := range t.NumField() {
		f := t.Field(i)
		of := elementOf(f.Type)
		if number, ok := protomessage.NumberOf(f); ok && (of.Kind() == reflect.Struct || of.Kind() == reflect.Map) {
			found[number] = of
		}
	}
	return found
}

// elementOf returns the type of the elements of pointers and lists, or the type
// itself.
func elementOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

package amount

import (
	"fmt"
	"reflect"
	"strconv"
)

// CheckValue returns a RangeError if content, a value as JSON decodes it, has a
// quantity out of range where the type of into, a pointer, has a quantity.
func CheckValue(into, content any) error {
	t, ok := target(into)
	if !ok {
		return nil
	}
	return checkValue(t, content)
}

func checkValue(t reflect.Type, content any) error {
	t = pointee(t)
	switch c := content.(type) {
	case string:
		if isQuantity(t) {
			return Check(c)
		}
	case float64:
		if isQuantity(t) {
			return Check(strconv.FormatFloat(c, 'g', -1, 64))
		}
	case map[string]any:
		return checkFields(t, c)
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil
		}
		for i, element := range c {
			if err := checkValue(t.Elem(), element); err != nil {
				return within(err, fmt.Sprintf("[%d]", i))
			}
		}
	}
	return nil
}

func checkFields(t reflect.Type, content map[string]any) error {
	switch {
	case t.Kind() == reflect.Map:
		for key, value := range content {
			if err := checkValue(t.Elem(), value); err != nil {
				return within(err, "["+key+"]")
			}
		}
	case t.Kind() == reflect.Struct && !isQuantity(t):
		for name, of := range membersOf(t).byName {
			if err := checkValue(of, content[name]); err != nil {
				return within(err, "."+name)
			}
		}
	}
	return nil
}

package celamount

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/coracle-io/coracle/internal/amount"
)

// patchType is the name of the type of an operation of a JSON patch, which
// expressions of MutatingAdmissionPolicies return. Its fields are op, path, from
// and value.
const patchType = "JSONPatch"

// objectVariable is the variable for the object that the patch is applied to.
const objectVariable = "object"

// errUnknownObject is the error for a patch that copies from an object that the
// expression does not have.
var errUnknownObject = errors.New("a JSON patch copies from an object that the expression does not have")

// boundPatch replaces the constructor of JSONPatch. The library applies the patch
// to the JSON of the object and decodes the result without a check in between. So
// an operation is refused whose value, or whose source in the object, contains a
// quantity out of range. An object that is in range before stays so: each
// operation moves values that were checked.
type boundPatch struct {
	interpreter.InterpretableConstructor
}

// Exec implements interpreter.InterpretableV2.
func (p boundPatch) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	made := p.InterpretableConstructor.Exec(frame)
	operation, ok := made.(traits.Indexer)
	if !ok || types.IsUnknownOrError(made) {
		return made
	}
	if err := checkOperation(frame, operation); err != nil {
		return types.WrapErr(err)
	}
	return made
}

// Eval implements interpreter.Interpretable.
func (p boundPatch) Eval(activation interpreter.Activation) ref.Val {
	return p.Exec(interpreter.AsFrame(activation))
}

func checkOperation(variables interpreter.Activation, operation traits.Indexer) error {
	if from, ok := operation.Get(types.String("from")).Value().(string); ok && from != "" {
		object, _ := variables.ResolveName(objectVariable)
		if err := checkSource(object, from); err != nil {
			return err
		}
	}
	value := operation.Get(types.String("value"))
	if value == nil {
		return nil
	}
	converted, err := value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	content, ok := converted.(*structpb.Value)
	if err != nil || !ok {
		return nil // the library cannot convert it either, and refuses the patch
	}
	return checkContent(content.AsInterface())
}

// checkSource checks the value in the object that a JSON pointer names. It checks
// the whole of a list, because earlier operations may change the indices in it. A
// value that the object does not have is that of an earlier operation. Only what the
// pointer names is converted: an expression may have an operation for each of
// thousands of fields.
func checkSource(object any, pointer string) error {
	at := types.DefaultTypeAdapter.NativeToValue(object)
	if _, ok := at.(traits.Mapper); !ok {
		return errUnknownObject
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	_, steps, _ := strings.Cut(pointer, "/")
	for step := range strings.SplitSeq(steps, "/") {
		fields, ok := at.(traits.Mapper)
		if !ok {
			break
		}
		if at, ok = fields.Find(types.String(unescape.Replace(step))); !ok {
			return nil
		}
		if types.IsUnknownOrError(at) {
			return errUnknownObject
		}
	}
	raw, err := json.Marshal(at.Value())
	if err != nil {
		return err
	}
	var content any
	if err := json.Unmarshal(raw, &content); err != nil {
		return err
	}
	return checkContent(content)
}

// checkContent returns an error if a value, as JSON decodes it, contains a
// quantity out of range, in a field of any type.
func checkContent(content any) error {
	switch c := content.(type) {
	case string:
		return amount.CheckUntyped(c)
	case float64:
		return amount.CheckUntyped(strconv.FormatFloat(c, 'g', -1, 64))
	case map[string]any:
		for _, value := range c {
			if err := checkContent(value); err != nil {
				return err
			}
		}
	case []any:
		for _, element := range c {
			if err := checkContent(element); err != nil {
				return err
			}
		}
	}
	return nil
}

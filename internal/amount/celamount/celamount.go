// Package celamount bounds the quantities in CEL expressions.
package celamount

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/coracle-io/coracle/internal/amount"
)

// Bound makes quantity, isQuantity and JSONPatch refuse quantities out of range in
// all expressions: those of policies, of definitions of custom resources, of
// webhooks and of selectors of devices. The cost of an expression does not
// depend on exponents, and a selector of a tenant runs in the scheduler.
//
// The libraries extend one environment for all expressions, and take no other.
// Bound changes that environment, once for the process. It is called before each
// use of a library that compiles expressions, and not at the start, because most
// clusters have no expressions and the environment takes time. Like the function
// that makes the environment, it panics if its options do not fit.
func Bound() { bound() }

var bound = sync.OnceFunc(func() {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	bounded, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		ProgramOptions:    []cel.ProgramOption{cel.CustomDecoratorV2(boundExpression)},
	})
	if err != nil {
		panic(fmt.Sprintf("bounding the quantities in expressions: %v", err))
	}
	*base = *bounded
})

// boundExpression replaces calls that parse a quantity, and operations of patches.
func boundExpression(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if constructor, ok := i.(interpreter.InterpretableConstructor); ok && constructor.Type().TypeName() == patchType {
		return boundPatch{constructor}, nil
	}
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 1 {
		return i, nil
	}
	switch call.Function() {
	case "quantity":
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), toQuantity), nil
	case "isQuantity":
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), isQuantity), nil
	}
	return i, nil
}

func toQuantity(args ...ref.Val) ref.Val {
	text, ok := args[0].Value().(string)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	q, err := amount.Parse(text)
	if err != nil {
		return types.WrapErr(err)
	}
	return apiservercel.Quantity{Quantity: &q}
}

func isQuantity(args ...ref.Val) ref.Val {
	text, ok := args[0].Value().(string)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	_, err := amount.Parse(text)
	return types.Bool(err == nil)
}

package dynamicresources

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/feature"
)

// compiler compiles expressions about devices. The features decide what the
// expressions can use.
type compiler struct{ features cel.Features }

func newCompiler(features *feature.Set) compiler {
	return compiler{cel.Features{
		EnableConsumableCapacity: features.Enabled(feature.DRAConsumableCapacity),
		EnableListTypeAttributes: features.Enabled(feature.DRAListTypeAttributes),
	}}
}

// selectors checks selectors by compiling them. stored selects the environment
// for stored expressions.
func (c compiler) selectors(p *field.Path, selectors []resourcev1.DeviceSelector, stored bool) field.ErrorList {
	return validateItems(p, selectors, resourcev1.DeviceSelectorsMaxSize, func(p *field.Path, s *resourcev1.DeviceSelector) field.ErrorList {
		switch at := p.Child("cel"); {
		case s.CEL == nil:
			return field.ErrorList{field.Required(at, "")}
		case stored:
			return nil
		default:
			cost, errs := c.expression(at.Child("expression"), s.CEL.Expression, false)
			if len(errs) == 0 && cost > resourcev1.CELSelectorExpressionMaxCost {
				errs = append(errs, field.Forbidden(at.Child("expression"), "too complex, exceeds cost limit"))
			}
			return errs
		}
	})
}

// expression compiles a selector or, if derived is set, an expression that
// computes an attribute, and returns its estimated maximum cost.
func (c compiler) expression(p *field.Path, text string, derived bool) (cost uint64, errs field.ErrorList) {
	if len(text) > resourcev1.CELSelectorExpressionMaxLength {
		return 0, field.ErrorList{field.TooLong(p, text, resourcev1.CELSelectorExpressionMaxLength)}
	}
	if nested(text) > maxDepth {
		return 0, field.ErrorList{field.Invalid(p, text, fmt.Sprintf("compilation failed: expression recursion limit exceeded: %d", maxDepth))}
	}
	celamount.Bound()
	kind := environment.NewExpressions
	result := cel.GetCompiler(c.features).CompileCELExpression(text, cel.Options{EnvType: &kind, DerivedAttribute: derived})
	if result.Error != nil {
		return 0, field.ErrorList{field.Invalid(p, text, result.Error.Detail)}
	}
	return result.MaxCost, nil
}

// maxDepth limits how deep lists, maps and function calls in an expression can
// be nested. The time for checking the types of nested lists grows with the
// cube of their depth, and a claim can have hundreds of expressions.
const maxDepth = 16

// newParser returns a parser of the language without macros. It takes time
// proportional to the length of the text.
var newParser = sync.OnceValues(func() (*parser.Parser, error) {
	return parser.NewParser(parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true))
})

// nested returns how deep an expression is nested, or 0 if it cannot be
// parsed.
func nested(text string) int {
	p, err := newParser()
	if err != nil {
		return 0
	}
	parsed, errs := p.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return 0
	}
	return depth(parsed.Expr())
}

// wraps reports whether the type that a method returns can contain the type of
// its receiver. Chains of other methods can have any length.
func wraps(method string) bool {
	return method == "map" || strings.HasPrefix(method, "transform") || strings.HasPrefix(method, "opt")
}

func depth(e ast.Expr) int {
	var parts []ast.Expr
	own, most := 1, 0
	switch e.Kind() {
	case ast.ListKind:
		parts = e.AsList().Elements()
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			parts = append(parts, f.AsStructField().Value())
		}
	case ast.CallKind:
		call := e.AsCall()
		if _, isOperator := operators.FindReverse(call.FunctionName()); isOperator {
			own = 0
		}
		parts = call.Args()
		if call.IsMemberFunction() {
			target := depth(call.Target())
			if wraps(call.FunctionName()) {
				target++
			}
			most = target
		}
	case ast.SelectKind:
		own, parts = 0, []ast.Expr{e.AsSelect().Operand()}
	default:
		return 0
	}
	for _, part := range parts {
		most = max(most, own+depth(part))
	}
	return max(own, most)
}

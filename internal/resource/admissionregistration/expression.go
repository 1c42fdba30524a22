package admissionregistration

import (
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// maxMatchConditions is how many conditions a webhook or policy may have.
const maxMatchConditions = 64

// compilers builds the compilers of CEL expressions on first use, because most
// clusters have no expressions.
type compilers struct {
	plain func() cel.Compiler
}

func newCompilers() *compilers {
	return &compilers{plain: sync.OnceValue(func() cel.Compiler {
		celamount.Bound()
		return cel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	})}
}

// strategy returns the strategy of a kind of this group. validate returns
// everything that is wrong with an object; old is nil if it is a new one.
func strategy[T resource.Object](validate func(c *compilers, obj, old T) field.ErrorList) resource.Strategy[T] {
	c := newCompilers()
	return resource.Strategy[T]{
		ForbidUnconditionalUpdate: true,
		Validate: func(r *resource.RequestContext, obj T) field.ErrorList {
			var none T
			return append(validate(c, obj, none), reserved(r, obj.GetName())...)
		},
		ValidateUpdate: func(_ *resource.RequestContext, obj, old T) field.ErrorList {
			return append(resource.ValidateMetadata(obj, false, validation.NameIsDNSSubdomain), validate(c, obj, old)...)
		},
		Warnings: func(_ *resource.RequestContext, obj, _ T) []string { return reservedWarnings(obj.GetName()) },
	}
}

// staticSuffix ends the names that only objects in the files of an API server
// have (KEP-5793).
const (
	staticSuffix = ".static.k8s.io"
	nameReserved = `names ending with "` + staticSuffix + `" are reserved for static manifest-based configurations and cannot be managed via the API`
)

// reserved refuses new objects with the names of those in files. The server
// reads these in no one's name.
func reserved(r *resource.RequestContext, name string) field.ErrorList {
	if r.User == nil || !strings.HasSuffix(name, staticSuffix) || !r.Features.Enabled(feature.ManifestBasedAdmissionControlConfig) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, nameReserved)}
}

// reservedWarnings warns of an object that is older than the rule or whose
// server has no files.
func reservedWarnings(name string) []string {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return []string{"metadata.name: " + nameReserved}
}

// withVariables returns a compiler for expressions that refer to variables.
func (c *compilers) withVariables() (*cel.CompositedCompiler, error) {
	celamount.Bound()
	return cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
}

// expression is one CEL expression and the types that it may evaluate to.
type expression struct {
	name, text string
	types      []*celgo.Type
}

func (e expression) GetName() string            { return e.name }
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return e.types }

func problems(p *field.Path, text string, result cel.CompilationResult) field.ErrorList {
	switch {
	case result.Error == nil:
		return nil
	case result.Error.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(p, result.Error.Detail)}
	case result.Error.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(p, text, result.Error.Detail)}
	default:
		return field.ErrorList{field.InternalError(p, result.Error)}
	}
}

// environmentOf returns the environment for compiling an expression. A stored
// expression can use parts of the language that new ones cannot use yet, which
// keeps it valid after a downgrade.
func environmentOf(text string, stored sets.Set[string]) environment.Type {
	if stored.Has(text) {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

func validateMatchConditions(
	p *field.Path, conditions []admissionv1.MatchCondition, compiler cel.Compiler,
	options cel.OptionalVariableDeclarations, stored sets.Set[string],
) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(p, len(conditions), maxMatchConditions))
	}
	names := sets.New[string]()
	for i, c := range conditions {
		at := p.Index(i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			e := expression{text: text, types: []*celgo.Type{celgo.BoolType}}
			result := compiler.CompileCELExpression(e, options, environmentOf(text, stored))
			errs = append(errs, problems(at.Child("expression"), text, result)...)
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, validators.Problems(at.Child("name"), c.Name, utilvalidation.IsQualifiedName(c.Name))...)
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names.Insert(c.Name)
	}
	return errs
}

// isIdentifier reports whether CEL expressions can refer to name.
func isIdentifier(name string) bool {
	for i, c := range name {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && !isReserved(name)
}

// isReserved reports whether name is a reserved word of CEL.
func isReserved(name string) bool {
	switch name {
	case "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
		"let", "loop", "package", "namespace", "return", "var", "void", "while":
		return true
	}
	return false
}

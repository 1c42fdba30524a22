package framework

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Factory describes a plugin before it is made. WithArguments describes one
// that takes arguments.
type Factory struct {
	Name string
	// NewArguments returns a pointer to empty arguments. It is nil if the plugin
	// takes none; so are SetDefaults and Validate.
	NewArguments func() any
	// SetDefaults fills in what arguments leave out.
	SetDefaults func(arguments any)
	// Validate returns everything that is wrong with arguments that have their
	// defaults. path is where a file has them.
	Validate func(path *field.Path, arguments any) field.ErrorList
	// New makes the plugin. arguments are of the type that NewArguments returns,
	// have their defaults and are valid. The plugin must not change them.
	New func(ctx context.Context, arguments any, h *Handle) (Plugin, error)
}

// WithArguments describes a plugin that takes arguments of type T. If T is a
// runtime.Object, it is a kind of the API group of KubeSchedulerConfiguration.
// setDefaults and validate may be nil.
func WithArguments[T any](
	name string, setDefaults func(*T), validate func(*field.Path, *T) field.ErrorList, construct func(context.Context, *T, *Handle) (Plugin, error),
) Factory {
	return Factory{
		Name:         name,
		NewArguments: func() any { return new(T) },
		SetDefaults: func(arguments any) {
			if setDefaults != nil {
				setDefaults(arguments.(*T))
			}
		},
		Validate: func(path *field.Path, arguments any) field.ErrorList {
			if validate == nil {
				return nil
			}
			return validate(path, arguments.(*T))
		},
		New: func(ctx context.Context, arguments any, h *Handle) (Plugin, error) {
			return construct(ctx, arguments.(*T), h)
		},
	}
}

// Simple describes a plugin without arguments that needs nothing to be made.
func Simple(p Plugin) Factory {
	return Factory{Name: p.Name(), New: func(context.Context, any, *Handle) (Plugin, error) { return p, nil }}
}

// DefaultArguments returns the arguments of a profile that configures none, or
// nil if the plugin takes none.
func (f Factory) DefaultArguments() any {
	if f.NewArguments == nil {
		return nil
	}
	arguments := f.NewArguments()
	f.SetDefaults(arguments)
	return arguments
}

// Registry is the plugins that profiles can be made of.
type Registry []Factory

// Find returns the factory of a name.
func (r Registry) Find(name string) (Factory, error) {
	for _, f := range r {
		if f.Name == name {
			return f, nil
		}
	}
	return Factory{}, fmt.Errorf("plugin %q does not exist", name)
}

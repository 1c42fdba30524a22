package base

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

// Given checks arguments before they are stored. They have the form that Set
// takes, or the form NAME-, which removes NAME. Each must name a flag of the
// component. Paths in values become absolute: relative ones begin at dir, or at the
// working directory if dir is "".
func Given(component string, fs *pflag.FlagSet, arguments []string, dir string) ([]string, error) {
	given := slices.Clone(arguments)
	for i, argument := range arguments {
		a := flagvalue.ParseArgument(argument)
		flag := fs.Lookup(a.Name)
		if flag == nil {
			return nil, unknownFlag(component, fs, argument, a.Name)
		}
		if a.Removes {
			continue
		}
		absolute, err := flagvalue.AbsolutePath(flag, dir, a.Value)
		if err != nil {
			return nil, BadArgument(component, argument, "%w", err)
		}
		if absolute != a.Value {
			given[i] = a.Name + "=" + absolute
		}
	}
	return given, nil
}

func unknownFlag(component string, fs *pflag.FlagSet, argument, name string) error {
	if component == "etcd" {
		return BadArgument(component, argument, "the embedded etcd has no flag --%s; it has %s", name, names(fs))
	}
	return BadArgument(component, argument, "the %s has no flag --%s; see coracle %s --help", component, name, component)
}

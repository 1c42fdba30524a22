package controller

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags adds --controllers, whose value goes to enabled, and the flags of
// all controllers. The present values are the defaults.
func AddFlags(fs *pflag.FlagSet, enabled *[]string, all []Descriptor) {
	fs.StringSliceVar(enabled, "controllers", *enabled, "A list of controllers to enable. '*' enables all on-by-default controllers, 'foo' enables the controller named 'foo', '-foo' disables the controller named 'foo'. All controllers: "+strings.Join(Names(all), ", ")+".")
	for _, d := range all {
		if d.AddFlags != nil {
			d.AddFlags(fs)
		}
	}
}

// WorkersFlag returns the AddFlags of a controller whose only flag is the
// number of objects that it syncs at once.
func WorkersFlag(workers *int, name, objects string) func(*pflag.FlagSet) {
	return func(fs *pflag.FlagSet) {
		fs.IntVar(workers, name, *workers, "The number of "+objects+" that are allowed to sync concurrently.")
	}
}

// CheckRange returns an error if the value of a flag is less than least or more
// than most.
func CheckRange(flag string, value, least, most int) error {
	switch {
	case value < least:
		return fmt.Errorf("--%s must not be less than %d, but got %d", flag, least, value)
	case value > most:
		return fmt.Errorf("--%s must not be more than %d, but got %d", flag, most, value)
	}
	return nil
}

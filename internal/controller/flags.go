package controller

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags adds --controllers, which is stored in enabled, and the flags of all
// controllers. The current values are the defaults.
func AddFlags(fs *pflag.FlagSet, enabled *[]string, all []Descriptor) {
	fs.StringSliceVar(enabled, "controllers", *enabled, "controllers to run: * is all that are on by default, NAME turns one on, -NAME turns one off; the names are "+strings.Join(Names(all), ", "))
	for _, d := range all {
		if d.AddFlags != nil {
			d.AddFlags(fs)
		}
	}
}

// WorkersFlag returns the AddFlags function of a controller whose only flag is
// the number of objects to sync concurrently.
func WorkersFlag(workers *int, name, objects string) func(*pflag.FlagSet) {
	return func(fs *pflag.FlagSet) {
		fs.IntVar(workers, name, *workers, "maximum number of "+objects+" that are synced concurrently")
	}
}

// CheckRange returns an error if the value of a flag is not within least and
// most, inclusive.
func CheckRange(flag string, value, least, most int) error {
	switch {
	case value < least:
		return fmt.Errorf("--%s must not be less than %d, but got %d", flag, least, value)
	case value > most:
		return fmt.Errorf("--%s must not be more than %d, but got %d", flag, most, value)
	}
	return nil
}

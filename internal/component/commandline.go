package component

import "github.com/spf13/pflag"

// commandLine knows which flags were given. The first set that is bound is the
// command line's: later ones, as that of /flagz, only read values.
type commandLine struct{ flags *pflag.FlagSet }

func (c *commandLine) bind(fs *pflag.FlagSet) {
	if c.flags == nil {
		c.flags = fs
	}
}

// gave is false for all flags if none were bound.
func (c *commandLine) gave(flag string) bool { return c.flags != nil && c.flags.Changed(flag) }

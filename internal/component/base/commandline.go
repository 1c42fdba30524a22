package base

import "github.com/spf13/pflag"

// CommandLine records which flags were given. The first set that is bound is
// the command line's: later ones, such as the set of /flagz, only read values.
type CommandLine struct{ flags *pflag.FlagSet }

// Bind notes the flags of the command line.
func (c *CommandLine) Bind(fs *pflag.FlagSet) {
	if c.flags == nil {
		c.flags = fs
	}
}

// Gave is false for all flags if none were bound.
func (c *CommandLine) Gave(flag string) bool { return c.flags != nil && c.flags.Changed(flag) }

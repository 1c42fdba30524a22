package flagvalue

import "testing"

func TestParseArgument(t *testing.T) {
	for argument, want := range map[string]Argument{
		"v=2":           {Name: "v", Value: "2", HasValue: true},
		"--v=2":         {Name: "v", Value: "2", HasValue: true},
		"v=":            {Name: "v", HasValue: true},
		"labels=a=b":    {Name: "labels", Value: "a=b", HasValue: true},
		"prefix=a-":     {Name: "prefix", Value: "a-", HasValue: true},
		"profiling":     {Name: "profiling"},
		"--profiling":   {Name: "profiling"},
		"profiling-":    {Name: "profiling", Removes: true},
		"--profiling-":  {Name: "profiling", Removes: true},
		"--no-such-=--": {Name: "no-such-", Value: "--", HasValue: true},
	} {
		if got := ParseArgument(argument); got != want {
			t.Errorf("%s: %+v, want %+v", argument, got, want)
		}
	}
}

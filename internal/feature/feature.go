// Package feature knows upstream's feature gates: what each is by default, and
// what --feature-gates makes of them.
//
//	--feature-gates=AllAlpha=true,EventedPLEG=false,WatchList=false
//	                a stage       one of it         a single gate
//
// A gate that is named counts more than its stage.
package feature

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Stage is how far a feature has come.
type Stage string

// The stages, as upstream's metrics write them.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = ""
	Deprecated Stage = "DEPRECATED"
)

// stages are the names that stand for every gate of a stage that is off.
var stages = map[string]Stage{"AllAlpha": Alpha, "AllBeta": Beta}

// Set says which features are on. It never changes, and nil is the defaults.
type Set struct {
	settings map[string]bool // what is not as by default
	given    map[string]bool // what was named, the stages included
	warnings []string
}

// Parse reads the entries of --feature-gates ("Name=true"). Names that are
// unknown and values that a gate is not allowed to have are an error that
// lists them all.
func Parse(entries []string) (*Set, error) {
	s := &Set{settings: map[string]bool{}, given: map[string]bool{}}
	var unknown, locked []string
	for _, entry := range entries {
		name, value, hasValue := strings.Cut(strings.TrimSpace(entry), "=")
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if !hasValue {
			return nil, fmt.Errorf("--feature-gates: missing bool value for %s: want %s=true or %s=false", name, name, name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("--feature-gates: invalid value of %s=%s: want true or false", name, value)
		}
		s.given[name] = on
		if _, ok := stages[name]; ok {
			continue
		}
		g, ok := known[name]
		switch {
		case !ok:
			unknown = append(unknown, name)
		case g.locked && g.on != on:
			locked = append(locked, fmt.Sprintf("cannot set feature gate %s to %t, feature is locked to %t", name, on, g.on))
		case g.stage == GA:
			s.warnings = append(s.warnings, fmt.Sprintf("Setting GA feature gate %s=%t. It will be removed in a future release.", name, on))
		case g.stage == Deprecated:
			s.warnings = append(s.warnings, fmt.Sprintf("Setting deprecated feature gate %s=%t. It will be removed in a future release.", name, on))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("--feature-gates: unrecognized feature gate: %s", strings.Join(unknown, ", "))
	}
	if len(locked) > 0 {
		return nil, fmt.Errorf("--feature-gates: %s", strings.Join(locked, "; "))
	}
	s.settle()
	return s, nil
}

// settle works out every gate that is not as by default.
func (s *Set) settle() {
	for name, stage := range stages {
		on, ok := s.given[name]
		if !ok {
			continue
		}
		for gate, g := range known {
			if g.stage == stage && !g.locked {
				s.settings[gate] = on
			}
		}
	}
	for name, on := range s.given {
		if _, ok := stages[name]; !ok {
			s.settings[name] = on
		}
	}
}

// Enabled says whether a feature is on. It panics on names that are not in
// the table: a caller that misspells one would never see it on.
func (s *Set) Enabled(name string) bool {
	if s != nil {
		if on, ok := s.settings[name]; ok {
			return on
		}
	}
	g, ok := known[name]
	if !ok {
		panic("no feature gate is called " + name)
	}
	return g.on
}

// Gate is one feature.
type Gate struct {
	Name  string
	Stage Stage
	On    bool
}

// Gates returns every feature by name, AllAlpha and AllBeta among them.
func (s *Set) Gates() []Gate {
	all := make([]Gate, 0, len(known)+len(stages))
	for name, g := range known {
		all = append(all, Gate{Name: name, Stage: g.stage, On: s.Enabled(name)})
	}
	for name, stage := range stages {
		all = append(all, Gate{Name: name, Stage: stage, On: s != nil && s.given[name]})
	}
	slices.SortFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Given returns what was named, the stages AllAlpha and AllBeta included.
func (s *Set) Given() map[string]bool {
	if s == nil {
		return nil
	}
	return maps.Clone(s.given)
}

// Warnings are about gates that will go away, in the order they were named.
func (s *Set) Warnings() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.warnings)
}

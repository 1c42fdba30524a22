// Package feature holds upstream's feature gates, with their stages and
// defaults, and parses --feature-gates.
//
//	--feature-gates=AllAlpha=true,EventedPLEG=false,WatchList=false
//	                a stage       one of it         a single gate
//
// The setting of a single gate takes precedence over the setting of its stage.
package feature

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Stage is the maturity of a feature.
type Stage string

// The stages, as in upstream's metrics.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = ""
	Deprecated Stage = "DEPRECATED"
)

// stages returns the names that set all gates of a stage, as --feature-gates
// spells them.
func stages() map[Gate]Stage { return map[Gate]Stage{"AllAlpha": Alpha, "AllBeta": Beta} }

// Set holds the settings of all gates. It is immutable; a nil Set holds the
// defaults.
type Set struct {
	settings map[Gate]bool // gates that may differ from their defaults
	named    map[Gate]bool // the entries of --feature-gates
	warnings []string
}

// Parse parses the entries of --feature-gates ("Name=true"). The error lists
// all unknown names, all gates that are locked to another value, or all that are
// on and depend on gates that are off. What changes nothing is in Warnings: a
// cluster that names such a gate still starts.
func Parse(entries []string) (*Set, error) {
	s := &Set{settings: map[Gate]bool{}, named: map[Gate]bool{}}
	var unknown, locked []string
	for _, entry := range entries {
		name, value, hasValue := strings.Cut(strings.TrimSpace(entry), "=")
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		gate := Gate(name)
		if !hasValue {
			return nil, fmt.Errorf("--feature-gates: missing bool value for %s: want %s=true or %s=false", name, name, name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("--feature-gates: invalid value of %s=%s: want true or false", name, value)
		}
		s.named[gate] = on
		if _, ok := stages()[gate]; ok {
			continue
		}
		g, ok := table()[gate]
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
	s.apply()
	if unmet := s.unmet(); len(unmet) > 0 {
		return nil, fmt.Errorf("--feature-gates: %s", strings.Join(unmet, "; "))
	}
	s.warnings = append(s.warnings, s.withoutEffect()...)
	return s, nil
}

// unmet describes the gates that are on and depend on gates that are off, in the
// order of their names.
func (s *Set) unmet() (all []string) {
	for _, gate := range slices.Sorted(maps.Keys(dependencies())) {
		if !s.Enabled(gate) {
			continue
		}
		var off []Gate
		for _, needed := range dependencies()[gate] {
			if !s.Enabled(needed) {
				off = append(off, needed)
			}
		}
		if len(off) > 0 {
			all = append(all, fmt.Sprintf("%s is enabled, but depends on features that are disabled: %v", gate, off))
		}
	}
	return all
}

// apply computes the settings from the named entries.
func (s *Set) apply() {
	for name, stage := range stages() {
		on, ok := s.named[name]
		if !ok {
			continue
		}
		for gate, g := range table() {
			if g.stage == stage && !g.locked {
				s.settings[gate] = on
			}
		}
	}
	for gate, on := range s.named {
		if _, ok := stages()[gate]; !ok {
			s.settings[gate] = on
		}
	}
}

// Enabled reports whether a gate is on. It panics if the gate is not in the
// table.
func (s *Set) Enabled(gate Gate) bool {
	if s != nil {
		if on, ok := s.settings[gate]; ok {
			return on
		}
	}
	g, ok := table()[gate]
	if !ok {
		panic("unknown feature gate " + string(gate))
	}
	return g.on
}

// State is the stage and the setting of a gate.
type State struct {
	Gate  Gate
	Stage Stage
	On    bool
}

// States returns the states of all gates, AllAlpha and AllBeta among them,
// sorted by name.
func (s *Set) States() []State {
	all := make([]State, 0, len(table())+len(stages()))
	for gate, g := range table() {
		all = append(all, State{Gate: gate, Stage: g.stage, On: s.Enabled(gate)})
	}
	for name, stage := range stages() {
		all = append(all, State{Gate: name, Stage: stage, On: s != nil && s.named[name]})
	}
	slices.SortFunc(all, func(a, b State) int { return strings.Compare(string(a.Gate), string(b.Gate)) })
	return all
}

// Named returns the entries of --feature-gates, AllAlpha and AllBeta among
// them. The caller may change the map.
func (s *Set) Named() map[Gate]bool {
	if s == nil {
		return nil
	}
	return maps.Clone(s.named)
}

// Warnings returns the warnings about gates that will be removed, in the order
// of the entries, and then those about gates without effect.
func (s *Set) Warnings() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.warnings)
}

package controller

import (
	"slices"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	all := []Descriptor{{Name: "a-controller", Aliases: []string{"a"}}, {Name: "b"}, {Name: "c", OffByDefault: true}}
	for list, want := range map[string]string{
		"*":       "a-controller b",
		"*,-a":    "b",
		"-b,*":    "a-controller",
		"*,c":     "a-controller b c",
		"b":       "b",
		"-b":      "",
		"c,-c,*":  "a-controller b c",
		"*,-a,-b": "",
	} {
		got, err := Select(all, strings.Split(list, ","))
		var names []string
		for _, d := range got {
			names = append(names, d.Name)
		}
		if err != nil || !slices.Equal(names, strings.Fields(want)) {
			t.Errorf("%s: got %v, %v; want %s", list, names, err, want)
		}
	}
	if _, err := Select(all, []string{"*", "-nope"}); err == nil || !strings.Contains(err.Error(), `"-nope"`) {
		t.Errorf("unknown name: %v", err)
	}
}

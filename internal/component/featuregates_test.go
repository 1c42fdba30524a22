package component

import (
	"strings"
	"testing"
)

func TestParseFeatures(t *testing.T) {
	enabled, err := parseFeatures([]string{"CBORServingAndStorage=true", " WatchList = false", ""})
	if err != nil || !enabled["CBORServingAndStorage"] || enabled["WatchList"] || !servesCBOR(enabled) {
		t.Errorf("%v %v", enabled, err)
	}
	for _, c := range []struct{ gates, want string }{
		{"Nope=true,WatchList=true,Neither=false", "unrecognized feature gate: Nope, Neither"},
		{"WatchList=maybe", "WatchList=maybe"},
		{"WatchList", "missing bool value for WatchList"},
	} {
		if _, err := parseFeatures(strings.Split(c.gates, ",")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.gates, err)
		}
	}
	for gates, want := range map[string]bool{"AllAlpha=true": true, "AllAlpha=true,CBORServingAndStorage=false": false, "AllBeta=true": false} {
		enabled, err := parseFeatures(strings.Split(gates, ","))
		if err != nil || servesCBOR(enabled) != want {
			t.Errorf("%s: CBOR %v, %v", gates, servesCBOR(enabled), err)
		}
	}
}

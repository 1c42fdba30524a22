package validators_test

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

func TestIntOrPercent(t *testing.T) {
	for value, want := range map[string]string{
		"0":    "",
		"7":    "",
		"-1":   "n: Invalid value: -1: must be greater than or equal to 0",
		"0%":   "",
		"100%": "",
		"101%": "n: Invalid value: \"101%\": must not be greater than 100%",
	} {
		t.Run(value, func(t *testing.T) {
			p, v := field.NewPath("n"), intstr.Parse(value)
			errs := append(validators.IntOrPercent(p, v), validators.AtMostWhole(p, v)...)
			got := ""
			if len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestShown(t *testing.T) {
	partition := int32(1)
	for _, test := range []struct {
		name string
		v    any
		want string
	}{
		{
			"every field, by its Go name",
			appsv1.StatefulSetUpdateStrategy{
				Type: "Odd", RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition},
			},
			`{"Type":"Odd","RollingUpdate":{"Partition":1,"MaxUnavailable":null}}`,
		},
		{
			"apimachinery's types keep their own form",
			appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}.Selector,
			`{"matchLabels":{"a":"b"}}`,
		},
		{
			"embedded structs are part of the outer one",
			resourcev1.DeviceClaimConfiguration{Requests: []string{"r"}},
			`{"Requests":["r"],"Opaque":null}`,
		},
		{
			"embedded metadata keeps its names",
			corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "data"}},
			`{"name":"data","Spec":{"AccessModes":null,"Selector":null,"Resources":{"Limits":null,"Requests":null},"VolumeName":"",` +
				`"StorageClassName":null,"VolumeMode":null,"DataSource":null,"DataSourceRef":null,"VolumeAttributesClassName":null}}`,
		},
		{
			"an order of its own, without fields of features that are off",
			corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}},
			`{"Name":"c","Items":null,"DefaultMode":null,"Optional":null}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(validators.Shown(test.v))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestUnchanged(t *testing.T) {
	for _, test := range []struct {
		name       string
		value, old any
		want       string
	}{
		{"the same", map[string]string{"a": "b"}, map[string]string{"a": "b"}, ""},
		{"nothing and empty", map[string]string{}, map[string]string(nil), ""},
		{"another", "a", "b", "f: Invalid value: null: field is immutable"},
	} {
		got := ""
		if errs := validators.Unchanged(field.NewPath("f"), test.value, test.old); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

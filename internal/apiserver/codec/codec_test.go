package codec_test

import (
	"bytes"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// configMaps returns objects and their entries, with the codec of their kind.
func configMaps(count int) (*codec.Version, []corev1.ConfigMap, []*watchcache.Entry) {
	r := core.ConfigMaps()
	var items []corev1.ConfigMap
	var entries []*watchcache.Entry
	for i := range count {
		m := corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i), Namespace: "default", Labels: map[string]string{"a": "<b> & \"c\""}},
			Data:       map[string]string{"key": string(bytes.Repeat([]byte("x"), i*100))},
		}
		items = append(items, m)
		entries = append(entries, &watchcache.Entry{Object: resource.Object(&m), Namespace: m.Namespace, Name: m.Name})
	}
	return codec.NewVersion(r, r.Hub(), &codec.Slots{}), items, entries
}

// upstream returns upstream's serializer of a media type.
func upstream(t *testing.T, media codec.Media) runtime.SerializerInfo {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(scheme.Scheme, serializer.WithSerializer(cbor.NewSerializerInfo)).SupportedMediaTypes(), media.String())
	if !ok {
		t.Fatal("no serializer of " + media.String())
	}
	return info
}

func encode(t *testing.T, s runtime.Encoder, obj runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(obj, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Responses assembled from cached encodings have the same bytes as the output
// of upstream's serializers.
func TestSameBytesAsUpstream(t *testing.T) {
	remaining := int64(7)
	for _, count := range []int{0, 1, 50} {
		v, items, entries := configMaps(count)
		meta := metav1.ListMeta{ResourceVersion: "42", Continue: "next", RemainingItemCount: &remaining}
		list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: meta, Items: []corev1.ConfigMap{}}
		metadata := &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: meta, Items: []metav1.PartialObjectMetadata{},
		}
		for _, item := range items {
			metadata.Items = append(metadata.Items, *codec.PartialMetadata(&item, metav1.SchemeGroupVersion))
			item.TypeMeta = metav1.TypeMeta{}
			list.Items = append(list.Items, item)
		}
		for _, media := range []codec.Media{codec.JSON, codec.Protobuf, codec.CBOR} {
			s := upstream(t, media).Serializer
			l, err := v.List(entries, meta, media)
			check(t, fmt.Sprintf("%d items in %s", count, media), l, err, encode(t, s, list))
			l, err = v.MetadataList(entries, meta, media, metav1.SchemeGroupVersion)
			check(t, fmt.Sprintf("metadata of %d items in %s", count, media), l, err, encode(t, s, metadata))
			for i, e := range entries {
				got, err := v.Entry(e, media)
				if want := encode(t, s, &items[i]); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %v\ngot  %q\nwant %q", media, err, got, want)
				}
			}
		}
	}
}

func check(t *testing.T, what string, l *codec.List, err error, want []byte) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Bytes()
	if err != nil || !bytes.Equal(got, want) || l.Size() != len(want) {
		t.Errorf("%s: %v, size %d\ngot  %q\nwant %q", what, err, l.Size(), got, want)
	}
}

func TestFrames(t *testing.T) {
	v, items, entries := configMaps(3)
	for i, e := range entries {
		for _, media := range []codec.Media{codec.JSON, codec.Protobuf, codec.CBOR} {
			info := upstream(t, media)
			event := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: encode(t, info.Serializer, &items[i])}}
			var want bytes.Buffer
			if media == codec.Protobuf {
				framed := protobuf.LengthDelimitedFramer.NewFrameWriter(&want)
				if _, err := framed.Write(encode(t, info.StreamSerializer.Serializer, event)); err != nil {
					t.Fatal(err)
				}
			} else {
				want.Write(encode(t, info.StreamSerializer.Serializer, event))
			}
			body, err := v.Entry(e, media)
			if err != nil {
				t.Fatal(err)
			}
			if got := codec.AppendFrame(nil, media, "ADDED", body); !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%s:\ngot  %q\nwant %q", media, got, want.Bytes())
			}
			if media == codec.Protobuf {
				raw, err := v.Raw(e)
				if got := v.AppendEnveloped(nil, "ADDED", raw); err != nil || !bytes.Equal(got, want.Bytes()) {
					t.Errorf("enveloped: %v\ngot  %q\nwant %q", err, got, want.Bytes())
				}
			}
		}
	}
}

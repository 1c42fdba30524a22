//go:build openapigen

// Command generate writes the OpenAPI documents that the API server embeds:
// version 2 as JSON and protobuf, and one version 3 document for each group
// version. The definitions come from openapi-gen, the routes from the
// project's own resources by the route installer of k8s.io/apiserver.
//
// It runs by `make generate`, which makes the definitions package first.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/emicklei/go-restful/v3"
	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/validation/spec"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/coracle-io/coracle/internal/apiserver/openapi/generate/definitions"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: generate VERSION DIRECTORY")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(version, dir string) error {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(apiregistrationv1.AddToScheme(s))
	// Without the types of requests, which other servers' kinds are not listed for.
	s.AddKnownTypes(metricsv1beta1.SchemeGroupVersion,
		&metricsv1beta1.NodeMetrics{}, &metricsv1beta1.NodeMetricsList{}, &metricsv1beta1.PodMetrics{}, &metricsv1beta1.PodMetricsList{})
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	c, err := container(s, all.All())
	if err != nil {
		return err
	}
	info := &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: version}}
	security := &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
		Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication",
	}}

	v2 := genericapiserver.DefaultOpenAPIConfig(definitions.GetOpenAPIDefinitions, apiopenapi.NewDefinitionNamer(s))
	v2.Info = info
	v2.SecurityDefinitions = &spec.SecurityDefinitions{"BearerToken": security}
	v2.DefaultSecurity = []map[string][]string{{"BearerToken": {}}}
	if err := writeV2(c, v2, dir); err != nil {
		return err
	}

	v3 := genericapiserver.DefaultOpenAPIV3Config(definitions.GetOpenAPIDefinitions, apiopenapi.NewDefinitionNamer(s))
	v3.Info = info
	v3.DefaultSecurity = v2.DefaultSecurity
	if err := writeV3(c, v3, dir); err != nil {
		return err
	}
	return writePreviews(s, c, v2, v3, filepath.Join(dir, "preview"))
}

// writePreviews writes both documents of each path that is served only with
// --runtime-config: v2/<path>.json.gz and v3/<path>.json.gz.
func writePreviews(s *runtime.Scheme, usual *restful.Container, v2 *common.Config, v3 *common.OpenAPIV3Config, dir string) error {
	features, err := feature.Parse([]string{"AllAlpha=true", "AllBeta=true"})
	if err != nil {
		return err
	}
	resources, err := runtimeconfig.Serve(all.All(), []string{"api/all=true"}, features)
	if err != nil {
		return err
	}
	on, _ := runtimeconfig.Changed(all.All(), resources)
	var previews []*resource.Resource
	for _, r := range resources {
		only := *r
		only.Versions = slices.DeleteFunc(slices.Clone(r.Versions), func(v resource.Version) bool { return !slices.Contains(on, v.GroupVersion) })
		if len(only.Versions) > 0 {
			previews = append(previews, &only)
		}
	}
	c, err := container(s, previews)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, ws := range usual.RegisteredWebServices() {
		there[ws.RootPath()] = true
	}
	for _, ws := range c.RegisteredWebServices() {
		if there[ws.RootPath()] {
			continue
		}
		path := strings.Trim(ws.RootPath(), "/")
		document, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{ws}), v2)
		if err != nil {
			return fmt.Errorf("OpenAPI v2 of %s: %w", path, err)
		}
		raw, err := json.Marshal(document)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, "v2", fileName(path)), raw); err != nil {
			return err
		}
		if err := writePath(path, []*restful.WebService{ws}, v3, dir); err != nil {
			return err
		}
	}
	return nil
}

func writeV2(c *restful.Container, config *common.Config, dir string) error {
	document, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(c.RegisteredWebServices()), config)
	if err != nil {
		return fmt.Errorf("OpenAPI v2: %w", err)
	}
	raw, err := json.Marshal(document)
	if err != nil {
		return err
	}
	parsed, err := openapi_v2.ParseDocument(raw)
	if err != nil {
		return fmt.Errorf("OpenAPI v2 as protobuf: %w", err)
	}
	pb, err := proto.MarshalOptions{Deterministic: true}.Marshal(parsed)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(dir, "v2.json.gz"), raw); err != nil {
		return err
	}
	return write(filepath.Join(dir, "v2.pb.gz"), pb)
}

// writeV3 writes v3/<path with _ for />.json.gz for each path of the
// version 3 index, such as api_v1 and apis_apps_v1.
func writeV3(c *restful.Container, config *common.OpenAPIV3Config, dir string) error {
	byPath := map[string][]*restful.WebService{}
	for _, ws := range c.RegisteredWebServices() {
		path := strings.Trim(ws.RootPath(), "/")
		byPath[path] = append(byPath[path], ws)
	}
	for path, services := range byPath {
		if err := writePath(path, services, config, dir); err != nil {
			return err
		}
	}
	return nil
}

func writePath(path string, services []*restful.WebService, config *common.OpenAPIV3Config, dir string) error {
	document, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(services), config)
	if err != nil {
		return fmt.Errorf("OpenAPI v3 of %s: %w", path, err)
	}
	raw, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, "v3", fileName(path)), raw)
}

func fileName(path string) string { return strings.ReplaceAll(path, "/", "_") + ".json.gz" }

func write(path string, raw []byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(raw); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

package volumebinder

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

// recyclers are the options of the pods that recycle volumes.
type recyclers struct{ hostPath, nfs recyclerOptions }

// recyclerOptions are the options for volumes of one type.
type recyclerOptions struct {
	// minimum is how many seconds a pod may take at least, and increment how many for each
	// GiB.
	minimum, increment int32
	// template is a file with the pod, as YAML or JSON, or empty. The first volume of the
	// pod is replaced by the one to recycle.
	template string
}

func defaultRecyclers() *recyclers {
	return &recyclers{hostPath: recyclerOptions{minimum: 60, increment: 30}, nfs: recyclerOptions{minimum: 300, increment: 30}}
}

func (r *recyclers) addFlags(fs *pflag.FlagSet) {
	const prefix = "pv-recycler-"
	fs.Int32Var(&r.hostPath.minimum, prefix+"minimum-timeout-hostpath", r.hostPath.minimum, "seconds that a pod which recycles a hostPath volume may take at least")
	fs.Int32Var(&r.hostPath.increment, prefix+"timeout-increment-hostpath", r.hostPath.increment, "seconds for each GiB that a pod which recycles a hostPath volume may take")
	fs.StringVar(&r.hostPath.template, prefix+"pod-template-filepath-hostpath", r.hostPath.template, "file with the pod that recycles hostPath volumes, in YAML or JSON; its first volume is replaced")
	fs.Int32Var(&r.nfs.minimum, prefix+"minimum-timeout-nfs", r.nfs.minimum, "seconds that a pod which recycles an NFS volume may take at least")
	fs.Int32Var(&r.nfs.increment, prefix+"increment-timeout-nfs", r.nfs.increment, "seconds for each GiB that a pod which recycles an NFS volume may take")
	fs.StringVar(&r.nfs.template, prefix+"pod-template-filepath-nfs", r.nfs.template, "file with the pod that recycles NFS volumes, in YAML or JSON; its first volume is replaced")
	flagvalue.Is(fs, flagvalue.File, prefix+"pod-template-filepath-hostpath", prefix+"pod-template-filepath-nfs")
}

func (r *recyclers) validate() error {
	var errs []error
	for flag, o := range map[string]*recyclerOptions{"hostpath": &r.hostPath, "nfs": &r.nfs} {
		if _, err := o.pod(); err != nil {
			errs = append(errs, fmt.Errorf("--pv-recycler-pod-template-filepath-%s: %w", flag, err))
		}
	}
	return errors.Join(errs...)
}

// podFor returns the pod that deletes the data of a volume, or nil if that is not possible
// for its type.
func (r *recyclers) podFor(v *v1.PersistentVolume) (*v1.Pod, error) {
	data, o := v1.VolumeSource{}, &r.hostPath
	switch {
	case v.Spec.HostPath != nil:
		data.HostPath = v.Spec.HostPath.DeepCopy()
	case v.Spec.NFS != nil:
		data.NFS, o = v.Spec.NFS.DeepCopy(), &r.nfs
	default:
		return nil, nil //nolint:nilnil // there is no recycler
	}
	pod, err := o.pod()
	if err != nil {
		return nil, fmt.Errorf("the pod that recycles volume %s: %w", v.Name, err)
	}
	pod.Namespace, pod.Name, pod.GenerateName = namespace, recycler+v.Name, ""
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, recycles, use(v))
	pod.Spec.Volumes[0].VolumeSource = data
	pod.Spec.ActiveDeadlineSeconds = new(max(int64(o.minimum), v.Spec.Capacity.Storage().Value()/(1<<30)*int64(o.increment)))
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil { // the data is on these nodes
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.Required.DeepCopy()}}
	}
	return pod, nil
}

// pod returns the pod of the template, or the default one.
func (o *recyclerOptions) pod() (*v1.Pod, error) {
	if o.template == "" {
		return &v1.Pod{Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyNever,
			Volumes:       []v1.Volume{{Name: "vol"}},
			Containers: []v1.Container{{
				Name: "pv-recycler", Image: image,
				Command:      []string{"find", "/scrub", "-mindepth", "1", "-delete"},
				VolumeMounts: []v1.VolumeMount{{Name: "vol", MountPath: "/scrub"}},
			}},
		}}, nil
	}
	content, err := os.ReadFile(o.template)
	if err != nil {
		return nil, err
	}
	var pod v1.Pod
	if err := yaml.UnmarshalStrict(content, &pod); err != nil {
		return nil, fmt.Errorf("%s: %w", o.template, err)
	}
	if pod.Kind != "" && pod.Kind != "Pod" || len(pod.Spec.Volumes) == 0 || len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("%s: it must be a Pod with a container and a volume", o.template)
	}
	return &pod, nil
}

"""The lab: virtual RDMA hosts on a leaf-spine fabric under QEMU, and the scenarios that run on it."""

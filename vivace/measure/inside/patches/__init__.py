"""Where training code is caught, one file per place. Each ``install`` replaces a torch function by one that does the
same and leaves marks around it. All of them pass straight through while torch.compile traces them."""

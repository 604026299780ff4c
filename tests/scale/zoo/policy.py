"""Reinforcement: episodes one state at a time, sampled actions, returns normalized over an episode, entropy."""

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
value = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 0.01)
for episode in range(3):
    state, states, actions, rewards = torch.zeros(3), [], [], []
    for _ in range(9):
        with torch.no_grad():
            action = Categorical(logits=policy(state[None])).sample().item()
        states.append(state)
        actions.append(action)
        state = 0.8 * state + (action - 0.5) * torch.tensor([1.0, -0.5, 0.2]) + 0.05 * torch.randn(3)
        rewards.append(-state.pow(2).sum().item())
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.9 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    batch = torch.stack(states)
    chosen = Categorical(logits=policy(batch))
    guess = value(batch).squeeze(1)
    advantage = returns - guess.detach()
    loss = -(chosen.log_prob(torch.tensor(actions)) * advantage).mean() + (guess - returns).pow(2).mean()
    loss = loss - 0.01 * chosen.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
    print("episode", episode, sum(rewards), loss.item())
